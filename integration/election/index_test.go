//go:build integration

package election

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

const createIndex = "CREATE INDEX CONCURRENTLY items_by_name ON items (name)"

func TestAnIndexIsCreatedConcurrentlyWhileFollowersWait(t *testing.T) {
	t.Parallel()
	backend := postgres.Config{DSN: pgtest.DSN(t)}
	conn := newItems(t, backend.DSN)
	join(t, "leader", backend, leader.Config{}, nil).requireStory("acquired 1.1")
	for i := range 3 {
		join(t, fmt.Sprintf("follower-%d", i), backend, leader.Config{}, nil)
	}
	for i := range 3 {
		requireWaiting(t, conn, 3)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		began := time.Now()
		_, err := conn.Exec(ctx, createIndex)
		require.NoError(t, err, "with %d indexes before", i)
		t.Logf("created in %v", time.Since(began))
		require.Equal(t, []bool{true}, indexes(t, conn))
		_, err = conn.Exec(ctx, "DROP INDEX CONCURRENTLY items_by_name")
		require.NoError(t, err)
	}
	requireWaiting(t, conn, 3)
}

// The control: a wait without steps holds the index up for ever.
func TestAnIndexIsNotCreatedWhileAPlainWaiterWaits(t *testing.T) {
	t.Parallel()
	backend := postgres.Config{DSN: pgtest.DSN(t)}
	conn := newItems(t, backend.DSN)
	join(t, "leader", backend, leader.Config{}, nil).requireStory("acquired 1.1")
	waiter := pgtest.Connect(t, backend.DSN)
	k1, k2, _ := election.Tag().Pair()
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() { _, _ = waiter.Exec(ctx, "SELECT pg_advisory_lock($1, $2)", k1, k2) })
	defer waiting.Wait()
	defer cancel()
	requireWaiting(t, conn, 1)
	_, err := conn.Exec(t.Context(), "SET statement_timeout = '5s'")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), createIndex)
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "57014", refused.Code)
	assert.Equal(t, []bool{false}, indexes(t, conn))
}

func newItems(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn := pgtest.Connect(t, dsn)
	_, err := conn.Exec(t.Context(), "CREATE TABLE items AS SELECT n AS id, n::text AS name FROM generate_series(1, 1000) AS n")
	require.NoError(t, err)
	return conn
}

// indexes tells which indexes of items are valid.
func indexes(t *testing.T, conn *pgx.Conn) []bool {
	t.Helper()
	rows, _ := conn.Query(t.Context(), "SELECT indisvalid FROM pg_index WHERE indrelid = 'items'::regclass") // CollectRows returns the error
	valid, err := pgx.CollectRows(rows, pgx.RowTo[bool])
	require.NoError(t, err)
	return valid
}

// requireWaiting waits until so many wait for the election lock.
func requireWaiting(t *testing.T, conn *pgx.Conn, n int) {
	t.Helper()
	until(t, "followers wait", func() bool {
		var waiting int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&waiting)
		return err == nil && waiting == n
	})
}
