package postgres_test

import (
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/sharetest"
	"github.com/pglatch/pglatch/lease"
)

func TestLocksAreSharedInPostgres(t *testing.T) {
	t.Parallel()
	sharetest.Run(t, sharetest.Harness{TTL: 500 * time.Millisecond, New: func(t *testing.T) lease.Store {
		t.Helper()
		return newStore(t, pgtest.DSN(t))
	}})
}
