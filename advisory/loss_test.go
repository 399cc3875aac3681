package advisory_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/lossreason"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestALossHasOneOfTheKnownReasons(t *testing.T) {
	t.Parallel()
	reasons := make(map[string]bool)
	for cause, want := range map[error]string{
		&pgconn.PgError{Code: "57P01"}:                               lossreason.Terminated,
		&pgconn.PgError{Code: "57P05"}:                               lossreason.IdleTimeout,
		&pgconn.PgError{Code: "57P02"}:                               lossreason.Crash,
		fmt.Errorf("%w: %w", session.ErrSilent, io.ErrUnexpectedEOF): lossreason.Silent,
		session.ErrNotHeld:                                           lossreason.NotHeld,
		advisory.ErrClosed:                                           lossreason.Closed,
		io.ErrUnexpectedEOF:                                          lossreason.Connection,
		errors.New("other"):                                          lossreason.Connection,
		error(&wrapped{nil}):                                         lossreason.Connection,
	} {
		got := advisory.ReasonOf(cause)
		assert.Equal(t, want, got, "%v", cause)
		reasons[got] = true
	}
	assert.Len(t, reasons, len(lossreason.All()))
	for _, r := range lossreason.All() {
		assert.True(t, reasons[r], "%v", r)
	}
	assert.Equal(t, lossreason.Connection, advisory.ReasonOf(nil))
}

type wrapped struct{ error }

func (*wrapped) Error() string { return "wrapped" }

func TestTheReasonOfARealLossIsWhatWasDone(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		lock, err := l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		_, err = work.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int32(lock.PID()))
		require.NoError(t, err)
		<-lock.Lost()
		assert.Equal(t, lossreason.Terminated, reasonOf(t, lock.Release()))

		lock, err = l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		l.Close()
		assert.Equal(t, lossreason.Closed, reasonOf(t, lock.Release()))
	})
}

func reasonOf(t *testing.T, err error) string {
	t.Helper()
	lost, ok := errors.AsType[*advisory.LostError](err)
	require.True(t, ok, "%v", err)
	return advisory.ReasonOf(lost.Cause)
}

// At 500 ms with a LossDrain of 200 ms a ping had 83 ms, and on busy processors every lock was lost.
func TestALossDrainLeavesAPingTimeToBeAnswered(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, row := range []struct {
		ttl, drain time.Duration
		good       bool
	}{
		{500 * ms, 0, true},
		{500 * ms, 33 * ms, true},
		{500 * ms, 34 * ms, false},
		{500 * ms, 200 * ms, false},
		{time.Second, 316 * ms, true},
		{time.Second, 400 * ms, false},
		{1500 * ms, 600 * ms, true},
		{1500 * ms, 600*ms + 1, false},
		{0, 6 * time.Second, true}, // 15 s
		{0, 6*time.Second + 1, false},
		{24 * time.Hour, 24 * time.Hour * 2 / 5, true},
		{time.Second, -1, false},
	} {
		locker, err := advisorytest.NewServer().Open(advisory.Config{SessionTTL: row.ttl, LossDrain: row.drain})
		if row.good {
			require.NoError(t, err, row)
			locker.Close()
			continue
		}
		var config *advisory.ConfigError
		require.ErrorAs(t, err, &config, row)
		assert.Equal(t, "LossDrain", config.Field)
		assert.Contains(t, config.Remedy, "longer SessionTTL")
	}
	for ttl := session.MinTTL; ttl <= time.Minute; ttl += 7 * ms {
		most := session.MaxLossDrain(ttl)
		assert.GreaterOrEqual(t, ttl-ttl/10-ttl/3-most, session.PingTime-1, ttl)
		assert.LessOrEqual(t, most, ttl*2/5)
		assert.Positive(t, most)
	}
}
