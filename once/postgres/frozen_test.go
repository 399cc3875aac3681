package postgres_test

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/internal/test/frozen/tables"
	"github.com/pglatch/pglatch/once/postgres"
)

func TestTheTableOfTicksIsFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "tables", tables.Of(t, postgres.Schema("")))
}
