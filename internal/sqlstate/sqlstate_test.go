package sqlstate_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/sqlstate"
)

// other is the error of another driver, such as lib/pq.
type other struct{}

func (other) Error() string    { return "canceled" }
func (other) SQLState() string { return sqlstate.QueryCanceled }

func TestOnlyAnErrorOfTheServersHasACode(t *testing.T) {
	t.Parallel()
	assert.Equal(t, sqlstate.QueryCanceled, sqlstate.Of(fmt.Errorf("waiting: %w", &pgconn.PgError{Code: "57014"})))
	assert.Equal(t, sqlstate.QueryCanceled, sqlstate.Of(errors.Join(errors.ErrUnsupported, other{})))
	assert.Empty(t, sqlstate.Of(nil))
	assert.Empty(t, sqlstate.Of(errors.ErrUnsupported))
}

func TestUndoneIsWhatAnotherTryMayDo(t *testing.T) {
	t.Parallel()
	for _, code := range []string{
		sqlstate.LockNotAvailable, sqlstate.QueryCanceled, sqlstate.CannotConnectNow, sqlstate.Deadlock, sqlstate.OutOfMemory, "40001", "53300",
	} {
		assert.True(t, sqlstate.Undone(code), code)
	}
	for _, code := range []string{"", sqlstate.UnknownCompletion, sqlstate.UniqueViolation, sqlstate.AdminShutdown, sqlstate.ReadOnly, "08006", "XX000"} {
		assert.False(t, sqlstate.Undone(code), code)
	}
}
