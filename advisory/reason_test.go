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
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestALossHasOneOfTheKnownReasons(t *testing.T) {
	t.Parallel()
	reasons := make(map[advisory.LossReason]bool)
	for cause, want := range map[error]advisory.LossReason{
		&pgconn.PgError{Code: "57P01"}:                               advisory.LossTerminated,
		&pgconn.PgError{Code: "57P05"}:                               advisory.LossIdleTimeout,
		&pgconn.PgError{Code: "57P02"}:                               advisory.LossCrash,
		fmt.Errorf("%w: %w", session.ErrSilent, io.ErrUnexpectedEOF): advisory.LossSilent,
		session.ErrNotHeld:                                           advisory.LossNotHeld,
		advisory.ErrClosed:                                           advisory.LossClosed,
		io.ErrUnexpectedEOF:                                          advisory.LossConnection,
		errors.New("other"):                                          advisory.LossConnection,
		error(&wrapped{nil}):                                         advisory.LossConnection,
	} {
		got := (&advisory.LostError{Cause: cause}).Reason()
		assert.Equal(t, want, got, "%v", cause)
		reasons[got] = true
	}
	assert.Len(t, reasons, len(advisory.LossReasons()))
	for _, r := range advisory.LossReasons() {
		assert.True(t, reasons[r], "%v", r)
	}
	assert.Equal(t, advisory.LossConnection, new(advisory.LostError).Reason())
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
		assert.Equal(t, advisory.LossTerminated, reasonOf(t, lock.Release()))

		lock, err = l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		l.Close()
		assert.Equal(t, advisory.LossClosed, reasonOf(t, lock.Release()))
	})
}

func reasonOf(t *testing.T, err error) advisory.LossReason {
	t.Helper()
	lost, ok := errors.AsType[*advisory.LostError](err)
	require.True(t, ok, "%v", err)
	return lost.Reason()
}
