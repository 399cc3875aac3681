package advisory_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/lossreason"
	"github.com/pglatch/pglatch/internal/session"
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
		l, work := open(t, advisory.Config{DSN: dsn}), workPool(t, dsn)
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
