//go:build integration

package environment

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
	shardspostgres "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/oncetest"
	"github.com/pglatch/pglatch/once/postgres"
)

func TestOpenRefusesAPoolerThatSharesSessions(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		for name, settings := range map[string][]string{
			"transaction mode":                        {"pool_mode=transaction"},
			"transaction mode with one session":       {"pool_mode=transaction", "default_pool_size=1"},
			"transaction mode with resets in between": {"pool_mode=transaction", "server_reset_query_always=1"},
			"statement mode":                          {"pool_mode=statement"},
		} {
			t.Run(name, func(t *testing.T) {
				dsn := service.PgBouncer(t, server, settings...)
				other := pgtest.Connect(t, dsn) // another client of the pooler
				const settings = "SELECT concat_ws(' ', current_setting('search_path'), current_setting('idle_session_timeout'))"
				var before, after string
				require.NoError(t, other.QueryRow(t.Context(), settings, pgx.QueryExecModeSimpleProtocol).Scan(&before))
				locker, err := advisory.Open(t.Context(), lockmode.Of(t).Config(advisory.Config{DSN: dsn}))
				require.Nil(t, locker)
				for range 20 {
					require.NoError(t, other.QueryRow(t.Context(), settings, pgx.QueryExecModeSimpleProtocol).Scan(&after))
					require.Equal(t, before, after, "the other client got our settings")
				}
				require.ErrorIs(t, err, advisory.ErrPooler)
				require.NotErrorIs(t, err, advisory.ErrUnavailable)
				require.ErrorContains(t, err, "pool_mode=session")
			})
		}
	})
}

// A process behind a pooler answers in session mode, on a server connection of its own.
func TestAProcessAnswersBehindAPoolerInSessionMode(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: service.PgBouncer(t, server, "pool_mode=session"), Answer: introspect.Config{Service: "behind"}})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	lock := acquire(t, locker, agents.ID(1))
	for _, dsn := range []string{server.DSN("postgres"), service.PgBouncer(t, server, "pool_mode=session")} {
		conn := pgtest.Connect(t, dsn)
		await.Until(t, patience, func() bool {
			answers, err := introspect.Ask(t.Context(), conn, introspect.Question{})
			require.NoError(t, err)
			return len(answers.Answers) == 1 && len(answers.Answers[0].Locks) == 1 && answers.Answers[0].Locks[0].Session == lock.PID()
		})
	}
	require.NoError(t, lock.Release())
}

func TestBehindAPoolerInSessionModeEverythingWorks(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		dsn := service.PgBouncer(t, server, "pool_mode=session")
		requireEverythingWorks(t, dsn, pgtest.Connect(t, server.DSN("")))
	})
}

// Nothing can be told of a pooler that has no second session to give. It is not
// refused for that.
func TestAFullSessionPoolerIsNotRefused(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		dsn := service.PgBouncer(t, server, "pool_mode=session", "default_pool_size=1")
		locker := open(t, advisory.Config{DSN: dsn, MaxConns: 1})
		err := locker.Do(t.Context(), agents.ID(1), func(ctx context.Context) error {
			requireLocks(t, pgtest.Connect(t, server.DSN("")), 1, 0)
			return ctx.Err()
		})
		require.NoError(t, err)
	})
}

// What could not be told of the pooler when one connection was made is asked again
// with the next; what could is not.
func TestAnOpenQuestionToAPoolerIsAskedAgain(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		for size, connections := range map[string]int64{"1": 4, "5": 3} { // each question costs one more
			t.Run("a pool of "+size, func(t *testing.T) {
				t.Parallel()
				var made atomic.Int64
				config := advisory.Config{
					DSN: service.PgBouncer(t, server, "pool_mode=session", "default_pool_size="+size), MaxConns: 1,
					Answer: introspect.Config{Off: true}, // its connection would be counted too
					BeforeConnect: func(context.Context, *pgx.ConnConfig) error {
						made.Add(1)
						return nil
					},
				}
				locker := open(t, config)
				require.EqualValues(t, 2, made.Load())
				lock := acquire(t, locker, agents.ID(1))
				_, err := pgtest.Connect(t, server.DSN("")).Exec(t.Context(), "SELECT pg_terminate_backend($1)", pidOf(t, locker))
				require.NoError(t, err)
				requireLost(t, lock)
				require.NoError(t, acquire(t, locker, agents.ID(1)).Release())
				require.Equal(t, connections, made.Load())
			})
		}
	})
}

func TestAClientThatLeavesASessionPoolerLeavesNoLock(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		dsn := service.PgBouncer(t, server, "pool_mode=session")
		direct := pgtest.Connect(t, server.DSN(""))
		locker := open(t, advisory.Config{DSN: dsn})
		lock := acquire(t, locker, agents.ID(1))
		requireLocks(t, direct, 1, 0)
		locker.Close()
		requireLost(t, lock)
		requireLocks(t, direct, 0, 0)
	})
}

// The control: what Open keeps from happening.
func TestATransactionPoolerGrantsOneLockToTwoClients(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	dsn := service.PgBouncer(t, server, "pool_mode=transaction")
	for range 2 {
		require.True(t, tryLock(t, pgtest.Connect(t, dsn)))
	}
	require.False(t, tryLock(t, pgtest.Connect(t, server.DSN(""))))
}

// tryLock takes a lock without pglatch.
func tryLock(t *testing.T, conn *pgx.Conn) (granted bool) {
	t.Helper()
	// No prepared statement: a transaction pooler of this age knows none.
	err := conn.QueryRow(t.Context(), "SELECT pg_try_advisory_lock(777)", pgx.QueryExecModeSimpleProtocol).Scan(&granted)
	require.NoError(t, err)
	return granted
}

func TestATransactionLockWorksBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{})
		locker := open(t, advisory.Config{DSN: server.DSN("")})
		direct := pgtest.Connect(t, server.DSN(""))
		for _, settings := range [][]string{
			{"pool_mode=transaction"},
			{"pool_mode=transaction", "default_pool_size=1"},
			{"pool_mode=transaction", "server_reset_query_always=1"},
		} {
			config, err := pgx.ParseConfig(service.PgBouncer(t, server, settings...))
			require.NoError(t, err)
			config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // a pooler of this age knows no prepared statements
			conn, err := pgx.ConnectConfig(t.Context(), config)
			require.NoError(t, err)
			defer conn.Close(context.WithoutCancel(t.Context()))

			require.ErrorIs(t, advisory.LockTx(t.Context(), conn, advisory.TxOptions{}, agents.ID(1)), advisory.ErrNoTransaction)
			requireLocks(t, direct, 0, 0)
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(1)))
			_, err = locker.TryAcquire(t.Context(), agents.ID(1))
			require.ErrorIs(t, err, advisory.ErrHeld)
			require.NoError(t, tx.Commit(t.Context()))
			requireLocks(t, direct, 0, 0)
			require.ErrorIs(t, advisory.LockTx(t.Context(), conn, advisory.TxOptions{}, agents.ID(1)), advisory.ErrNoTransaction)
		}
	})
}

var onceTables atomic.Int64

// onceStore is a store on an empty table.
func onceStore(t *testing.T, dsn string) once.Store {
	t.Helper()
	store, err := postgres.New(postgres.Config{DSN: dsn, CreateTable: true, Table: fmt.Sprintf("once_%d", onceTables.Add(1))})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func TestTicksAreClaimedBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	for _, settings := range [][]string{
		{"pool_mode=transaction", "default_pool_size=4"},
		{"pool_mode=transaction", "server_reset_query_always=1"},
	} {
		dsn := service.PgBouncer(t, server, settings...)
		t.Run(settings[1], func(t *testing.T) {
			oncetest.Run(t, oncetest.Harness{New: func(t *testing.T) once.Store { t.Helper(); return onceStore(t, dsn) }})
		})
	}
}

func TestATickRunsInATransactionBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	dsn := service.PgBouncer(t, server, "pool_mode=transaction")
	pool := dbtest.Pool(t, dsn+"&default_query_exec_mode=exec")
	_, err := pool.Exec(t.Context(), postgres.Schema(""), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	did, tick := 0, time.Now().Truncate(time.Minute)
	for range 3 {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := postgres.DoTx(t.Context(), tx, "report", tick, func(context.Context) error { did++; return nil })
			return err
		}))
	}
	require.Equal(t, 1, did)
	_, err = postgres.DoTx(t.Context(), pool, "report", time.Now(), func(context.Context) error { did++; return nil })
	require.ErrorIs(t, err, postgres.ErrNoTransaction)
}

func TestShardsRefuseAPoolerThatSharesSessions(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	open := func(mode string) (driver.Session, error) {
		b, err := shardspostgres.New(shardspostgres.Config{DSN: service.PgBouncer(t, server, "pool_mode="+mode), Namespace: namespace.Must(7, "tenant"), CreateTable: true})
		require.NoError(t, err)
		return b.Open(t.Context(), driver.Member{Identity: "a", Weight: 100}, time.Minute)
	}
	for _, mode := range []string{"transaction", "statement"} {
		_, err := open(mode)
		require.ErrorIs(t, err, shardspostgres.ErrPooler, mode)
		require.ErrorIs(t, err, leader.ErrPermanent)
		require.ErrorContains(t, err, "pool_mode=session")
	}
	s, err := open("session") // the control
	require.NoError(t, err)
	grants, err := s.Claim(t.Context(), []string{"1"})
	require.NoError(t, err)
	require.Len(t, grants, 1)
	require.NoError(t, s.Leave(t.Context()))
	require.NoError(t, s.Close())
}
