//go:build integration

package seams

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/mutex"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	leaderpg "github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/shards"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	leasepg "github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/shared"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/once"
	oncepg "github.com/pglatch/pglatch/once/postgres"
)

var agents, tenants = namespace.Must(1, "agent"), namespace.Must(7, "tenant")

// An entry is one use of one entry point, from its opening to its end.
type entry struct {
	name string
	use  useFunc
}

type useFunc func(ctx context.Context, t *testing.T, s site) error

// entries are all uses, in the order of the rows of the table in docs/seams.md.
var entries = []entry{
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
	{"election", useElection},
	{"lease", withStore(useLease)},
	{"lease guard", withStore(useLeaseGuard)},
	{"lock server", withStore(useLockServer)},
	{"shared lease", withStore(useSharedLease)},
	{"once", useOnce},
	{"once DoTx", inTx(useOnceTx)},
	{"shards", useShards},
	{"middleware", useMiddleware},
	{"adapter", useMutex},
	{"monitor", useMonitor},
	{"answers", useAnswers},
	{"pglatch run", command("run", "-w", "20s", "1:1", "--", "true")},
	{"pglatch try", command("try", "1:1")},
	{"pglatch ls", command("ls")},
	{"pglatch status", free(command("status", "1:1"))},
	{"pglatch leader run", command("leader", "run", "1:7", "--create-table", "--no-auto-reacquire", "--", "true")},
	{"pglatch leader status", free(command("leader", "status", "1:7"))},
	{"pglatch shards ls", free(command("shards", "ls", "tenant=7"))},
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

// inTx runs fn in a transaction of the caller's, whose session it leaves as it was.
func inTx(fn func(context.Context, pgx.Tx) error) useFunc {
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
		if err == nil && before != after {
			err = fmt.Errorf("the caller's session was %q and is %q", before, after)
		}
		return err
	}
}

func useElection(ctx context.Context, _ *testing.T, s site) error {
	backend, err := leaderpg.New(leaderpg.Config{DSN: s.dsn, Key: namespace.Pair(1, 100), CreateTable: true})
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
		return leaderpg.InTx(ctx, conn, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		})
	})
}

// withStore gives use a store of leases. A store of another version, and one without tables, is left as it is.
func withStore(use func(ctx context.Context, t *testing.T, pool *pgxpool.Pool, store *leasepg.Store) error) useFunc {
	return func(ctx context.Context, t *testing.T, s site) error {
		t.Helper()
		pool, err := pgxpool.New(ctx, s.dsn+"&default_query_exec_mode=exec") // without prepared statements
		if err != nil {
			return err
		}
		defer pool.Close()
		store, err := leasepg.New(leasepg.Config{Pool: pool})
		if err != nil {
			return err
		}
		defer store.Close()
		return use(ctx, t, pool, store)
	}
}

func useLease(ctx context.Context, t *testing.T, _ *pgxpool.Pool, store *leasepg.Store) error {
	t.Helper()
	l, err := store.Acquire(ctx, lease.AcquireRequest{Name: t.Name(), Holder: "seams", TTL: time.Minute})
	if err != nil {
		return err
	}
	if l, err = store.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: time.Minute}); err != nil {
		return err
	}
	return store.Release(ctx, l.Claim)
}

func useLeaseGuard(ctx context.Context, t *testing.T, pool *pgxpool.Pool, store *leasepg.Store) error {
	t.Helper()
	l, err := store.Acquire(ctx, lease.AcquireRequest{Name: t.Name(), Holder: "seams", TTL: time.Minute})
	if err != nil {
		return err
	}
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return leasepg.Guard(ctx, tx, l.Claim) }); err != nil {
		return err
	}
	return store.Release(ctx, l.Claim)
}

// withServer gives use a client of a lock server.
func withServer(store *leasepg.Store, use func(client *leasehttp.Client) error) error {
	server, err := leaseserver.New(leaseserver.Config{Store: store})
	if err != nil {
		return err
	}
	front := httptest.NewServer(server.Handler())
	defer front.Close()
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{front.URL}})
	if err != nil {
		return err
	}
	defer client.Close()
	return use(client)
}

func useLockServer(ctx context.Context, _ *testing.T, _ *pgxpool.Pool, store *leasepg.Store) error {
	return withServer(store, func(client *leasehttp.Client) error {
		l, err := client.Acquire(ctx, lease.AcquireRequest{Name: "seams-http", Holder: "seams", TTL: time.Minute})
		if err != nil {
			return err
		}
		return client.Release(ctx, l.Claim)
	})
}

func useSharedLease(ctx context.Context, _ *testing.T, _ *pgxpool.Pool, store *leasepg.Store) error {
	return withServer(store, func(client *leasehttp.Client) error {
		share, err := client.AcquireShare(ctx, shared.Request{AcquireRequest: lease.AcquireRequest{Name: "seams-slots", Holder: "seams", TTL: time.Minute}, Slots: 2}, 0)
		if err != nil {
			return err
		}
		return client.Release(ctx, share.Claim)
	})
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
	if err == nil {
		require.True(t, result.Did)
	}
	return err
}

func useOnceTx(ctx context.Context, tx pgx.Tx) error {
	_, err := oncepg.DoTx(ctx, tx, "seams-tx", time.Now(), func(ctx context.Context) error { return ctx.Err() })
	return err
}

func useShards(ctx context.Context, _ *testing.T, s site) error {
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
		worked = shardspg.InTx(ctx, conn, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		})
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
	m := mutex.New(l, agents.ID(1))
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	_, err = m.UnlockContext(ctx)
	return err
}

func useMonitor(ctx context.Context, _ *testing.T, s site) error {
	m, err := monitor.Open(monitor.Config{DSN: s.dsn})
	if err != nil {
		return err
	}
	defer m.Close()
	_, err = m.Snapshot(ctx)
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

// An exit is the exit code of a command that did not succeed.
type exit struct {
	code   int
	stderr string
}

func (e *exit) Error() string { return fmt.Sprintf("exit code %d: %s", e.code, e.stderr) }

func command(args ...string) useFunc {
	return func(_ context.Context, t *testing.T, s site) error {
		t.Helper()
		_, stderr, code := clitest.Run(t, clitest.At(s.dsn), args...)
		if code == 0 {
			return nil
		}
		return &exit{code, stderr}
	}
}

// free is a command that ends with 3 if it finds nothing.
func free(use useFunc) useFunc {
	return func(ctx context.Context, t *testing.T, s site) error {
		t.Helper()
		err := use(ctx, t, s)
		if code(3)(err) {
			return nil
		}
		return err
	}
}
