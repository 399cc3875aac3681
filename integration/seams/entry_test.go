//go:build integration

package seams

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/mutex"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	leaderpg "github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/shards"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	leasepg "github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/once"
	oncepg "github.com/pglatch/pglatch/once/postgres"
	"github.com/pglatch/pglatch/turns"
)

var agents, tenants = namespace.Must(1, "agent"), namespace.Must(7, "tenant")

// An entry is one use of one entry point, from its opening to its end.
type entry struct {
	name string
	use  useFunc
}

type useFunc func(ctx context.Context, t *testing.T, s site) error

// entries are all uses, in the order of the rows of the table in docs/reference/seams.md.
var entries = slices.Concat(calls, commands)

var calls = []entry{
	{"Acquire", withLocker(func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.Acquire(ctx, agents.ID(1))
	})},
	{"TryAcquire", withLocker(func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.TryAcquire(ctx, agents.ID(1))
	})},
	{"shared", withLocker(func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.With(advisory.Options{Shared: true}).Acquire(ctx, agents.ID(1))
	})},
	{"AcquireAll", withLocker(func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.AcquireAll(ctx, agents.ID(1), agents.ID(2))
	})},
	{"AcquireSlot", withLocker(func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.AcquireSlot(ctx, agents.ID(1), 2)
	})},
	{"Acquire of a held key", whileHeld(withLocker(func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) { return l.Acquire(ctx, heldKey) }))},
	{"Do", useDo},
	{"DoOrSkip", useDoOrSkip},
	{"LockTx", inTx(func(ctx context.Context, tx pgx.Tx) error {
		return advisory.LockTx(ctx, tx, advisory.TxOptions{}, agents.ID(1), agents.ID(2))
	})},
	{"try of LockTx", inTx(func(ctx context.Context, tx pgx.Tx) error {
		return advisory.LockTx(ctx, tx, advisory.TxOptions{Try: true}, agents.ID(1))
	})},
	{"LockTx of a held key", whileHeld(inTx(func(ctx context.Context, tx pgx.Tx) error {
		return advisory.LockTx(ctx, tx, advisory.TxOptions{}, heldKey)
	}))},
	{"try of LockTx of a held key", whileHeld(heldTx(inTx(func(ctx context.Context, tx pgx.Tx) error {
		return advisory.LockTx(ctx, tx, advisory.TxOptions{Try: true}, heldKey)
	})))},
	{"LockSQLTx", inSQLTx(func(ctx context.Context, tx *sql.Tx) error {
		return advisory.LockSQLTx(ctx, tx, advisory.TxOptions{}, agents.ID(1))
	})},
	{"election", useElection},
	{"candidate", useCandidate},
	{"lease", withStore(useLease)},
	{"lease guard", withStore(useLeaseGuard)},
	{"look at leases", withStore(useLeaseLook)},
	{"lock server", withStore(useLockServer)},
	{"look at a lock server", withStore(useLockServerLook)},
	{"heartbeat", withStore(useHeartbeat)},
	{"shared lease", withStore(useSharedLease)},
	{"once", useOnce},
	{"look at ticks", useOnceLook},
	{"once DoTx", inTx(useOnceTx)},
	{"once DoSQLTx", inSQLTx(useOnceSQLTx)},
	{"turns", useTurns},
	{"turns Send", inTx(useTurnsTx, "idle_in_transaction_session_timeout=15000")}, // a sender that is stopped keeps others out no longer
	{"turns SendSQL", inSQLTx(useTurnsSQLTx)},
	{"shards", useShards},
	{"look at shards", withShards(func(ctx context.Context, b *shardspg.Backend) error {
		_, err := shards.Observe(ctx, b)
		return err
	})},
	{"pin", withShards(func(ctx context.Context, b *shardspg.Backend) error {
		return errors.Join(b.Pin(ctx, "acme", "seams"), b.Pin(ctx, "acme", ""))
	})},
	{"drain", withShards(func(ctx context.Context, b *shardspg.Backend) error {
		return errors.Join(b.Drain(ctx, "nobody", true), b.Drain(ctx, "nobody", false))
	})},
	{"middleware", useMiddleware},
	{"adapter", useMutex},
	{"monitor", useMonitor},
	{"answers", useAnswers},
	{"requests", useRequests},
	// Those that make tables come last, so that the others find what was there.
	{"election table", useElectionTable},
	{"lease schema", withStore(func(ctx context.Context, _ *testing.T, _ *pgxpool.Pool, store *leasepg.Store) error {
		return store.Migrate(ctx)
	})},
	{"once table", useOnceTable},
	{"turns schema", withMailbox(nil, func(ctx context.Context, box *turns.Mailbox, _ *pgxpool.Pool) error { return box.Migrate(ctx) })},
	{"shards tables", withShards(func(ctx context.Context, b *shardspg.Backend) error { return b.Migrate(ctx) })},
}

// connect opens a connection of the caller's. Statements are not prepared, as poolers need.
func connect(ctx context.Context, dsn string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	return pgx.ConnectConfig(ctx, config)
}

// open opens a Locker of one lock for each connection.
func open(ctx context.Context, dsn string) (*advisory.Locker, error) {
	return advisory.Open(ctx, advisory.Config{DSN: dsn, Wait: patience / 2})
}

// withLocker uses a Locker of one lock for each connection, and one of several.
func withLocker(acquire func(context.Context, *advisory.Locker) (*advisory.Lock, error)) useFunc {
	use := func(ctx context.Context, config advisory.Config) error {
		l, err := advisory.Open(ctx, config)
		if err != nil {
			return err
		}
		defer l.Close()
		lock, err := acquire(ctx, l)
		if err != nil {
			return err
		}
		return lock.Release()
	}
	return func(ctx context.Context, _ *testing.T, s site) error {
		config := advisory.Config{DSN: s.dsn, Wait: patience / 2}
		one := use(ctx, config)
		config.LocksPerConn = 10
		return errors.Join(one, use(ctx, config))
	}
}

func useDo(ctx context.Context, _ *testing.T, s site) error {
	l, err := open(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Do(ctx, agents.ID(1), func(ctx context.Context) error { return ctx.Err() })
}

// heldKey is what another session has for a while.
var heldKey = namespace.Pair(1, 9)

// whileHeld uses a key that another session has until somebody waits for it, or the use has ended.
func whileHeld(use useFunc) useFunc {
	return func(ctx context.Context, t *testing.T, s site) error {
		t.Helper()
		holder := admin(t, s.admin)
		_, err := holder.Exec(ctx, "SELECT pg_advisory_lock(1, 9)")
		require.NoError(t, err)
		since := time.Now()
		done := make(chan error, 1)
		go func() { done <- use(ctx, t, s) }()
		for ended := false; !ended; {
			var waited bool
			require.NoError(t, s.judge.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = "+
				"(SELECT oid FROM pg_database WHERE datname = current_database()))").Scan(&waited))
			select {
			case err = <-done:
				done <- err
				ended = true
			case <-time.After(10 * time.Millisecond):
				ended = waited && time.Since(since) > s.hold
			}
		}
		require.NoError(t, holder.Close(ctx))
		return <-done
	}
}

// heldTx demands that a try of a held key says so, and leaves the transaction as it was.
func heldTx(use useFunc) useFunc {
	return func(ctx context.Context, t *testing.T, s site) error {
		t.Helper()
		err := use(ctx, t, s)
		if errors.Is(err, advisory.ErrHeld) {
			return nil
		}
		if err == nil {
			err = errors.New("a held key was granted")
		}
		return err
	}
}

// inTx runs fn in a transaction of the caller's, whose session it leaves as it was, but for settings that it makes on
// purpose until the end of the transaction.
func inTx(fn func(context.Context, pgx.Tx) error, sets ...string) useFunc {
	return func(ctx context.Context, t *testing.T, s site) error {
		t.Helper()
		conn, err := connect(ctx, s.dsn)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		var before, after string
		// In one transaction, because a pooler may give the next one another session.
		const session = `SELECT pg_catalog.concat((SELECT count(*) FROM pg_catalog.pg_prepared_statements), ' prepared; ', (
			SELECT pg_catalog.string_agg(pg_catalog.concat(name, '=', setting), ' ' ORDER BY name) FROM pg_catalog.pg_settings WHERE source = 'session' AND setting <> reset_val))`
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, session).Scan(&before); err != nil {
				return err
			}
			if err := fn(ctx, tx); err != nil {
				return err
			}
			return tx.QueryRow(ctx, session).Scan(&after)
		})
		for _, setting := range sets {
			after = strings.Replace(after, setting, "", 1)
		}
		if err == nil && before != after {
			err = fmt.Errorf("the caller's session was %q and is %q", before, after)
		}
		return err
	}
}

// inSQLTx runs fn in a transaction of database/sql, and rolls it back.
func inSQLTx(fn func(context.Context, *sql.Tx) error) useFunc {
	return func(ctx context.Context, t *testing.T, s site) error {
		t.Helper()
		db := openSQL(t, s)
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		err = fn(ctx, tx)
		return errors.Join(err, tx.Rollback())
	}
}

// openSQL opens a pool of database/sql for the rest of the test.
func openSQL(t *testing.T, s site) *sql.DB {
	t.Helper()
	config, err := pgx.ParseConfig(s.dsn)
	require.NoError(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func electionOf(s site) (*leaderpg.Backend, error) {
	return leaderpg.New(leaderpg.Config{DSN: s.dsn, Key: namespace.Pair(1, 100), CreateTable: true})
}

func useElection(ctx context.Context, t *testing.T, s site) error {
	t.Helper()
	backend, err := electionOf(s)
	if err != nil {
		return err
	}
	elector, err := leader.New(leader.Config{Name: "seams", Backend: backend, LeadOnce: true})
	if err != nil {
		return err
	}
	return elector.Run(ctx, func(ctx context.Context) error {
		conn, err := connect(ctx, s.dsn)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		guarded := func(ctx context.Context, tx pgx.Tx) error { return leaderpg.Guard(ctx, tx) }
		inSQL := func(ctx context.Context, tx *sql.Tx) error { return leaderpg.GuardSQL(ctx, tx) }
		db := openSQL(t, s)
		return errors.Join(leaderpg.InTx(ctx, conn, guarded), leaderpg.InTxOptions(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, guarded),
			leaderpg.InSQLTx(ctx, db, inSQL), leaderpg.InSQLTxOptions(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, inSQL))
	})
}

// useCandidate drives an Elector by hand.
func useCandidate(ctx context.Context, _ *testing.T, s site) error {
	backend, err := electionOf(s)
	if err != nil {
		return err
	}
	elector, err := leader.New(leader.Config{Name: "seams", Backend: backend, LeadOnce: true})
	if err != nil {
		return err
	}
	events := elector.Events(ctx)
	if err := elector.Start(ctx); err != nil {
		return errors.Join(err, elector.Shutdown(ctx))
	}
	err = elector.WaitForLeadership(ctx)
	if err == nil {
		_, led, looked := elector.Leader(ctx)
		if err = looked; err == nil && !led {
			err = errors.New("the leader is not found")
		}
	}
	if err := errors.Join(err, elector.StepDown(ctx), elector.Shutdown(ctx)); err != nil {
		return err
	}
	for e := range events {
		if e.Kind == leader.EventStopped {
			return nil
		}
	}
	return context.Cause(ctx)
}

func useElectionTable(ctx context.Context, _ *testing.T, s site) error {
	backend, err := electionOf(s)
	if err != nil {
		return err
	}
	if err := backend.Migrate(ctx); err != nil {
		return err
	}
	_, err = backend.NewEra(ctx)
	return err
}

func useOnce(ctx context.Context, t *testing.T, s site) error {
	t.Helper()
	store, err := oncepg.New(oncepg.Config{DSN: s.dsn, CreateTable: true})
	if err != nil {
		return err
	}
	defer store.Close()
	runner, err := once.New(once.Config{Store: store})
	if err != nil {
		return err
	}
	result, err := runner.Do(ctx, t.Name(), time.Now(), func(ctx context.Context) error { return ctx.Err() })
	if err != nil {
		return err
	}
	require.True(t, result.Did)
	run, err := runner.Claim(ctx, t.Name()+" by hand", time.Now())
	if err != nil {
		return err
	}
	_, err = run.End(nil)
	return err
}

func useOnceTable(ctx context.Context, _ *testing.T, s site) error {
	store, err := oncepg.New(oncepg.Config{DSN: s.dsn})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	_, err = store.Sweep(ctx)
	return err
}

func useOnceLook(ctx context.Context, _ *testing.T, s site) error {
	store, err := oncepg.New(oncepg.Config{DSN: s.dsn})
	if err != nil {
		return err
	}
	defer store.Close()
	runner, err := once.New(once.Config{Store: store})
	if err != nil {
		return err
	}
	_, err = runner.Missed(ctx, "seams", time.Time{}, func(t time.Time) time.Time { return t.Truncate(time.Hour).Add(time.Hour) })
	return err
}

func useOnceSQLTx(ctx context.Context, tx *sql.Tx) error {
	_, err := oncepg.DoSQLTx(ctx, tx, "seams-sql-tx", time.Now(), func(ctx context.Context) error { return ctx.Err() })
	return err
}

func useOnceTx(ctx context.Context, tx pgx.Tx) error {
	_, err := oncepg.DoTx(ctx, tx, "seams-tx", time.Now(), func(ctx context.Context) error { return ctx.Err() })
	return err
}

// withShards gives use the backend of a group.
func withShards(use func(context.Context, *shardspg.Backend) error) useFunc {
	return func(ctx context.Context, _ *testing.T, s site) error {
		backend, err := shardspg.New(shardspg.Config{DSN: s.dsn, Namespace: tenants})
		if err != nil {
			return err
		}
		return use(ctx, backend)
	}
}

func useShards(ctx context.Context, t *testing.T, s site) error {
	t.Helper()
	backend, err := shardspg.New(shardspg.Config{DSN: s.dsn, Namespace: tenants, CreateTable: true})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	worked := errors.New("nothing was owned")
	node, err := shards.New(shards.Config{Name: "seams", Backend: backend, Shards: []string{"acme"}, Callbacks: shards.Callbacks{OnError: func(err error) {
		worked = err
		stop()
	}}})
	if err != nil {
		return err
	}
	err = node.Run(ctx, func(ctx context.Context, _ shards.Shard) error {
		defer stop()
		conn, err := connect(ctx, s.dsn)
		if err != nil {
			worked = err
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		guarded := func(ctx context.Context, tx pgx.Tx) error { return shardspg.Guard(ctx, tx) }
		inSQL := func(ctx context.Context, tx *sql.Tx) error { return shardspg.GuardSQL(ctx, tx) }
		db := openSQL(t, s)
		worked = errors.Join(shardspg.InTx(ctx, conn, guarded), shardspg.InTxOptions(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, guarded),
			shardspg.InSQLTx(ctx, db, inSQL), shardspg.InSQLTxOptions(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, inSQL))
		return nil
	})
	if err == nil {
		err = worked
	}
	return err
}

func useMiddleware(ctx context.Context, t *testing.T, s site) error {
	t.Helper()
	l, err := open(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer l.Close()
	mux := http.NewServeMux()
	mux.Handle("POST /agents/{id}", middleware.Must(middleware.Config{Locker: l, Key: middleware.PathValue(agents, "id")})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/agents/1", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return nil
}

func useMutex(ctx context.Context, _ *testing.T, s site) error {
	l, err := open(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer l.Close()
	m := mutex.New(l, agents.ID(3)) // TryLockContext would fail on a key that another entry has
	for _, lock := range []func(context.Context) error{m.LockContext, m.TryLockContext} {
		if err := lock(ctx); err != nil {
			return err
		}
		if _, err := m.ExtendContext(ctx); err != nil {
			return err
		}
		if _, err := m.UnlockContext(ctx); err != nil {
			return err
		}
	}
	texts := mutex.NewLocker(l, agents)
	_, release, err := texts.Lock(ctx, "a")
	if err != nil {
		return err
	}
	release()
	_, _, release, err = texts.TryLock(ctx, "a")
	if err != nil {
		return err
	}
	release()
	work := func(ctx context.Context) error { return ctx.Err() }
	_, err = texts.TryLockAndDo(ctx, "a", work)
	return errors.Join(texts.LockAndDo(ctx, "a", work), err)
}

func useMonitor(ctx context.Context, _ *testing.T, s site) error {
	m, err := monitor.Open(monitor.Config{DSN: s.dsn})
	if err != nil {
		return err
	}
	defer m.Close()
	if _, err := m.Snapshot(ctx); err != nil {
		return err
	}
	_, err = m.Verdicts(ctx)
	return err
}

func useDoOrSkip(ctx context.Context, _ *testing.T, s site) error {
	l, err := open(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer l.Close()
	ran, err := l.DoOrSkip(ctx, agents.ID(1), func(ctx context.Context) error { return ctx.Err() })
	if err == nil && !ran {
		err = errors.New("a free key was skipped")
	}
	return err
}

func useRequests(ctx context.Context, _ *testing.T, s site) error {
	conn, err := connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = introspect.Send(ctx, conn, introspect.Request{Kind: introspect.AskRelease, Tag: agents.ID(1).Tag(), Timeout: time.Second})
	return err
}

func useAnswers(ctx context.Context, _ *testing.T, s site) error {
	conn, err := connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = introspect.Ask(ctx, conn, introspect.Question{Timeout: time.Second})
	return err
}
