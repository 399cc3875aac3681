package program_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/namespace"
)

func TestEachConditionHasItsExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0},
		{&program.ExitError{Code: 3}, 3},
		{fmt.Errorf("x: %w", &program.ExitError{Code: 126, Err: errors.New("y")}), 126},
		{&advisory.HeldError{Key: namespace.Pair(1, 2)}, 75},
		{&advisory.TimeoutError{Key: namespace.Pair(1, 2), Cause: context.DeadlineExceeded}, 75},
		{&advisory.LostError{Key: namespace.Pair(1, 2), Cause: advisory.ErrUnavailable}, 76},
		{&advisory.LostError{Key: namespace.Pair(1, 2), Cause: advisory.ErrRefused}, 76},
		{advisory.ErrUnavailable, 69},
		{advisory.ErrRefused, 77},
		{fmt.Errorf("%w: %w", leader.ErrConnection, advisory.ErrRefused), 77},
		{&pgconn.PgError{Code: "42501"}, 77},
		{&pgconn.PgError{Code: "57P03"}, 70},
		{advisory.ErrPooler, 69},
		{advisory.ErrStandby, 69},
		{advisory.ErrLockTableFull, 69},
		{&advisory.ConfigError{Field: "MaxConns"}, 64},
		{&namespace.ClashError{}, 64},
		{&program.SignalError{Signal: syscall.SIGINT}, 130},
		{&program.SignalError{Signal: syscall.SIGTERM}, 143},
		{errors.New("whatever"), 70},
	} {
		assert.Equal(t, c.code, program.Code(c.err), "%v", c.err)
	}
}
