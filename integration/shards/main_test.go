//go:build integration

package shards

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// The times of all nodes.
const (
	lease    = electiontest.Lease
	look     = lease / 5 // what 0 means
	stay     = lease / 2
	patience = electiontest.Patience

	// A claim, by one that looks because nothing told it to.
	attempt = 2*look + electiontest.RenewTimeout
)

// The shards of a list, and how many more the next list of a deploy has, and the last has not.
const (
	listed  = 300
	shifted = 20
)

var tenants = namespace.Must(9, "tenant")

func TestMain(m *testing.M) {
	electiontest.Main(map[string]electiontest.Role{"owner": own})
	pgtest.Main(m)
}

// newBackend is what a node stands on.
func newBackend(dsn string) (driver.Backend, error) {
	return postgres.New(postgres.Config{DSN: dsn, Namespace: tenants, CreateTable: true})
}

// inTx runs fn in a transaction that is guarded by the term of ctx.
func inTx(ctx context.Context, pool *pgxpool.Pool, fn func(context.Context, pgx.Tx) error) error {
	return postgres.InTx(ctx, pool, fn)
}

// shardName and shardOf are how shards are called.
func shardName(i int) string { return fmt.Sprintf("tenant-%03d", i) }

func shardOf(name string) (i int) {
	if _, err := fmt.Sscanf(name, "tenant-%d", &i); err != nil {
		panic("BUG: " + err.Error())
	}
	return i
}

// listFrom returns the names of the list that begins with a shard.
func listFrom(first int) []string {
	names := make([]string, listed)
	for i := range names {
		names[i] = shardName(first + i)
	}
	return names
}
