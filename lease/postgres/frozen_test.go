package postgres_test

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/internal/test/frozen/tables"
	"github.com/pglatch/pglatch/lease/postgres"
)

// The bodies of functions may change: a later version replaces them.
func TestTheSchemaOfLeasesIsFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "tables", tables.Of(t, postgres.Schema()))
}
