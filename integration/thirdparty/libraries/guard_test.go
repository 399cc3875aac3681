package libraries

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	leaderpostgres "github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/lease"
	leasepostgres "github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// requireGuarded has guard let a transaction of the library write, and refuse one after
// depose has let somebody else come.
func requireGuarded(t *testing.T, begin func(*testing.T, *sql.DB) transaction, dsn string, guard func(transaction) error, depose func(), refused error) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "CREATE TABLE written (what text)")
	require.NoError(t, err)
	write := func(tx transaction, what string) error {
		_, err := tx.ExecContext(t.Context(), "INSERT INTO written VALUES ('"+what+"')")
		return err
	}
	tx := begin(t, db)
	require.NoError(t, guard(tx))
	require.NoError(t, write(tx, "in time"))
	require.NoError(t, tx.commit())

	depose()
	late := begin(t, db)
	require.ErrorIs(t, guard(late), refused)
	require.Error(t, write(late, "late"), "the transaction is aborted")
	require.NoError(t, late.rollback())
	unguarded := begin(t, db)
	require.NoError(t, write(unguarded, "unguarded"), "control")
	require.NoError(t, unguarded.commit())

	var all string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT string_agg(what, ', ') FROM written").Scan(&all))
	require.Equal(t, "in time, unguarded", all)
}

func TestTransactionsOfLibrariesAreGuardedByTheTermOfALeader(t *testing.T) {
	t.Parallel()
	for name, begin := range begins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			first, stop := lead(t, dsn)
			defer func() { stop() }()
			requireGuarded(t, begin, dsn,
				func(tx transaction) error { return leaderpostgres.GuardSQL(context.WithoutCancel(first), tx) },
				func() {
					stop()
					_, stop = lead(t, dsn)
				},
				leader.ErrNotLeader)
		})
	}
}

// lead returns the context of a leader's work, and what ends its leadership and waits for that.
func lead(t *testing.T, dsn string) (work context.Context, stop func()) {
	t.Helper()
	backend, err := leaderpostgres.New(leaderpostgres.Config{DSN: dsn, Key: namespace.Pair(1, 100), CreateTable: true})
	require.NoError(t, err)
	elector, err := leader.New(leader.Config{Name: "libraries", Backend: backend})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	leads, ended := make(chan context.Context, 1), make(chan error, 1)
	go func() {
		ended <- elector.Run(ctx, func(ctx context.Context) error {
			leads <- ctx
			<-ctx.Done()
			return nil
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return await.Receive(t, await.Patience, leads, "nobody leads"), stop
}

func TestTransactionsOfLibrariesAreGuardedByALease(t *testing.T) {
	t.Parallel()
	for name, begin := range begins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			store, err := leasepostgres.New(leasepostgres.Config{DSN: dsn})
			require.NoError(t, err)
			defer store.Close()
			require.NoError(t, store.Migrate(t.Context()))
			acquire := func(holder string) lease.Lease {
				l, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: "what? it's $1", Holder: holder, TTL: time.Hour})
				require.NoError(t, err)
				return l
			}
			first := acquire("first?")
			requireGuarded(t, begin, dsn,
				func(tx transaction) error { return leasepostgres.GuardSQL(t.Context(), tx, first.Claim) },
				func() {
					require.NoError(t, store.Release(t.Context(), first.Claim))
					acquire("second")
				},
				lease.ErrStale)
		})
	}
}
