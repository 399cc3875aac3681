package gooselock_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/gooselock"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/namespace/interop"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// migrations are three that fail if they are applied twice.
var migrations = fstest.MapFS{
	"00001_customers.sql": {Data: []byte("-- +goose Up\nCREATE TABLE customers (id bigint, name text);\n")},
	"00002_index.sql":     {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\nCREATE INDEX CONCURRENTLY customers_name ON customers (name);\n")},
	"00003_orders.sql":    {Data: []byte("-- +goose Up\nCREATE TABLE orders (id bigint);\n")},
}

// open opens a Locker of a replica until the end of the test.
func open(t *testing.T, dsn string) *advisory.Locker {
	t.Helper()
	locks, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(locks.Close)
	return locks
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newLocker(t *testing.T, locks *advisory.Locker, timeout time.Duration) *gooselock.Locker {
	t.Helper()
	l, err := gooselock.New(gooselock.Config{Locker: locks, Timeout: timeout})
	require.NoError(t, err)
	return l
}

func newSessionLocker(t *testing.T, locks *advisory.Locker, timeout time.Duration) *gooselock.SessionLocker {
	t.Helper()
	l, err := gooselock.NewSession(gooselock.Config{Locker: locks, Timeout: timeout})
	require.NoError(t, err)
	return l
}

func newProvider(t *testing.T, db *sql.DB, files fs.FS, option goose.ProviderOption) *goose.Provider {
	t.Helper()
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, option)
	require.NoError(t, err)
	return p
}

func TestGoosesOwnSuiteOfProvidersPasses(t *testing.T) {
	t.Parallel()
	for name, lockers := range map[string]func(t *testing.T, dsn string) func() goose.ProviderOption{
		"each provider is a replica with a Locker": func(t *testing.T, dsn string) func() goose.ProviderOption {
			t.Helper()
			return func() goose.ProviderOption { return goose.WithLocker(newLocker(t, open(t, dsn), 0)) }
		},
		"each provider is a replica with a SessionLocker": func(t *testing.T, dsn string) func() goose.ProviderOption {
			t.Helper()
			return func() goose.ProviderOption { return goose.WithSessionLocker(newSessionLocker(t, open(t, dsn), 0)) }
		},
		"all providers share a Locker": func(t *testing.T, dsn string) func() goose.ProviderOption {
			t.Helper()
			l := newLocker(t, open(t, dsn), 0)
			return func() goose.ProviderOption { return goose.WithLocker(l) }
		},
		"all providers share a SessionLocker": func(t *testing.T, dsn string) func() goose.ProviderOption {
			t.Helper()
			l := newSessionLocker(t, open(t, dsn), 0)
			return func() goose.ProviderOption { return goose.WithSessionLocker(l) }
		},
		"some have goose's own locker": func(t *testing.T, dsn string) func() goose.ProviderOption {
			t.Helper()
			n := 0
			return func() goose.ProviderOption {
				if n++; n%2 == 0 {
					return goose.WithSessionLocker(newSessionLocker(t, open(t, dsn), 0))
				}
				theirs, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60))
				require.NoError(t, err)
				return goose.WithSessionLocker(theirs)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			option := lockers(t, dsn)
			locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
				t.Helper()
				return newProvider(t, openDB(t, dsn), migrations, option())
			})
		})
	}
}

// The suite waits for twice the timeout, and calls Unlock with a context that has ended.
func TestGoosesOwnSuiteOfLockersPasses(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	dsn := pgtest.DSN(t)
	locktesting.TestConcurrentLocking(t, openDB(t, dsn), func(t *testing.T) lock.Locker {
		t.Helper()
		return newLocker(t, open(t, dsn), 0)
	}, 2*time.Second)
}

// held takes goose's lock as another replica would, until the function that it returns is called.
func held(t *testing.T, dsn string) (release func()) {
	t.Helper()
	l, err := open(t, dsn).Acquire(t.Context(), interop.Goose())
	require.NoError(t, err)
	return func() { assert.NoError(t, l.Release()) }
}

// waiting waits until n sessions wait for goose's lock.
func waiting(t *testing.T, conn *pgx.Conn, n int) {
	t.Helper()
	await.Until(t, await.Patience, func() bool {
		_, waiters, err := pgtest.CountLocks(t.Context(), conn, interop.Goose())
		return assert.NoError(t, err) && waiters == n
	})
}

func TestEachCallWaitsForItsWholeTimeoutHoweverOftenOthersTimedOut(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	release := held(t, dsn)
	conn := pgtest.Connect(t, dsn)
	short := newLocker(t, open(t, dsn), 300*time.Millisecond)
	for range 3 {
		await.Until(t, await.Patience, func() bool { // a busy machine does not always say that it is held
			err := short.Lock(t.Context(), nil)
			return assert.ErrorIs(t, err, advisory.ErrTimeout) && errors.Is(err, advisory.ErrHeld)
		})
	}
	goosesConn, err := openDB(t, dsn).Conn(t.Context())
	require.NoError(t, err)
	defer goosesConn.Close()
	l := newSessionLocker(t, open(t, dsn), time.Minute)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.SessionLock(ended, goosesConn), context.Canceled)
	locked := make(chan error, 1)
	go func() { locked <- l.SessionLock(t.Context(), goosesConn) }()
	waiting(t, conn, 1)
	release()
	require.NoError(t, <-locked, "the lock came to a call that came after others that timed out")
	require.NoError(t, l.SessionUnlock(ended, goosesConn))
	require.ErrorIs(t, l.SessionUnlock(t.Context(), goosesConn), gooselock.ErrNotLocked)
}

// The control of the test above: what goose's own locker does.
func TestGoosesOwnLockerHasOneBudgetOfRetriesForItsWholeLife(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	dsn := pgtest.DSN(t)
	release := held(t, dsn)
	defer release()
	conn, err := openDB(t, dsn).Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	theirs, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 2))
	require.NoError(t, err)
	began := time.Now()
	require.Error(t, theirs.SessionLock(t.Context(), conn))
	first := time.Since(began)
	require.GreaterOrEqual(t, first, 2*time.Second, "two retries, a second apart")
	fastest := first
	for range 5 { // of which a busy machine may hold some up
		began = time.Now()
		require.Error(t, theirs.SessionLock(t.Context(), conn))
		fastest = min(fastest, time.Since(began))
	}
	require.Less(t, fastest, first/2, "without a retry")
}

func TestAWaiterWhoseContextEndsLeavesNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	release := held(t, dsn)
	conn := pgtest.Connect(t, dsn)
	p := newProvider(t, openDB(t, dsn), migrations, goose.WithSessionLocker(newSessionLocker(t, open(t, dsn), 0)))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := p.Up(ctx)
		failed <- err
	}()
	waiting(t, conn, 1)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	release()
	waiting(t, conn, 0)
	_, err := p.Up(t.Context())
	require.NoError(t, err)
	await.Until(t, await.Patience, func() bool {
		granted, waiters, err := pgtest.CountLocks(t.Context(), conn, interop.Goose())
		return assert.NoError(t, err) && granted+waiters == 0
	})
}

func TestTheLockIsNotPassedToWhoMayNotUnlockIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db := openDB(t, dsn)
	first, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer first.Close()
	second, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer second.Close()
	l := newSessionLocker(t, open(t, dsn), 0)
	require.NoError(t, l.SessionLock(t.Context(), first))
	require.ErrorIs(t, l.SessionUnlock(t.Context(), second), gooselock.ErrNotLocked)
	require.NoError(t, l.SessionUnlock(t.Context(), first))
}

func TestABadConfigNamesItsField(t *testing.T) {
	t.Parallel()
	var bad *advisory.ConfigError
	_, err := gooselock.New(gooselock.Config{})
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "Locker", bad.Field)
	_, err = gooselock.NewSession(gooselock.Config{Locker: open(t, pgtest.DSN(t)), Timeout: -1})
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "Timeout", bad.Field)
}

// A key of one's own takes the place of goose's.
func TestProvidersOfTwoKeysDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	release := held(t, dsn)
	defer release()
	l, err := gooselock.New(gooselock.Config{Locker: open(t, dsn), Key: namespace.Must(1, "migrations").ID(1)})
	require.NoError(t, err)
	_, err = newProvider(t, openDB(t, dsn), migrations, goose.WithLocker(l)).Up(t.Context())
	require.NoError(t, err)
}
