package interop_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/jackc/pgx/v5"
	tern "github.com/jackc/tern/v2/migrate"
	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/namespace/interop"
)

func TestGooseAndPglatchExcludeEachOther(t *testing.T) {
	t.Parallel()
	session := func(ctx context.Context, dsn string) (conn *sql.Conn, unlock func() error, err error) {
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 1))
		if err != nil {
			return nil, nil, err
		}
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			return nil, nil, err
		}
		if conn, err = db.Conn(ctx); err == nil {
			err = locker.SessionLock(ctx, conn)
		}
		if err != nil {
			_ = db.Close()
			return nil, nil, err
		}
		return conn, func() error {
			return errors.Join(locker.SessionUnlock(context.WithoutCancel(ctx), conn), conn.Close(), db.Close())
		}, nil
	}
	peer{
		key: always(interop.Goose()),
		hold: func(t *testing.T, dsn string) (release func()) {
			t.Helper()
			_, unlock, err := session(t.Context(), dsn)
			require.NoError(t, err)
			return func() { assert.NoError(t, unlock()) }
		},
		try: func(ctx context.Context, dsn string) (refused bool, err error) {
			_, unlock, err := session(ctx, dsn)
			if err == nil {
				return false, unlock()
			}
			if strings.Contains(err.Error(), "failed to acquire lock") { // after its retries
				err = nil
			}
			return err == nil, err
		},
	}.require(t)
}

// The key depends on how the driver was made.
func TestGolangMigrateAndPglatchExcludeEachOther(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct {
		key  func(database string) namespace.Key
		open func(dsn string) (database.Driver, error)
	}{
		"WithInstance": {
			func(db string) namespace.Key { return interop.GolangMigrate(db, "public", "schema_migrations") },
			func(dsn string) (database.Driver, error) {
				db, err := sql.Open("pgx/v5", dsn)
				if err != nil {
					return nil, err
				}
				return migratepgx.WithInstance(db, &migratepgx.Config{})
			},
		},
		"by a URL, as the command does": {
			func(db string) namespace.Key { return interop.GolangMigrate("/"+db, "public", "schema_migrations") },
			func(dsn string) (database.Driver, error) {
				u, err := url.Parse(dsn)
				if err != nil {
					return nil, err
				}
				u.Scheme = "pgx5"
				return database.Open(u.String())
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer{
				key:   way.key,
				waits: true,
				hold: func(t *testing.T, dsn string) (release func()) {
					t.Helper()
					d, err := way.open(dsn)
					require.NoError(t, err)
					require.NoError(t, d.Lock())
					return func() { assert.NoError(t, errors.Join(d.Unlock(), d.Close())) }
				},
				try: func(_ context.Context, dsn string) (refused bool, err error) {
					d, err := way.open(dsn) // locks too
					if err != nil {
						return false, err
					}
					return false, errors.Join(d.Lock(), d.Unlock(), d.Close())
				},
			}.require(t)
		})
	}
}

func TestTernAndPglatchExcludeEachOther(t *testing.T) {
	t.Parallel()
	migrate := func(ctx context.Context, dsn string, run tern.MigrationFunc) (err error) {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
		m, err := tern.NewMigrator(ctx, conn, "public.schema_version")
		if err != nil {
			return err
		}
		m.Migrations = []*tern.Migration{{Sequence: 1, Name: "one", UpFunc: run}}
		return m.Migrate(ctx)
	}
	peer{
		key:   always(interop.Tern()),
		waits: true,
		hold: func(t *testing.T, dsn string) (release func()) {
			t.Helper()
			entered, leave := make(chan struct{}), make(chan struct{})
			release = background(t, func() error {
				return migrate(t.Context(), dsn, func(context.Context, *pgx.Conn) error {
					close(entered)
					<-leave
					return nil
				})
			}, func() { close(leave) })
			<-entered
			return release
		},
		try: func(ctx context.Context, dsn string) (refused bool, err error) {
			return false, migrate(ctx, dsn, func(context.Context, *pgx.Conn) error { return nil })
		},
	}.require(t)
}

func TestTheMonitorShowsTheLocksOfOtherTools(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m, err := monitor.Open(monitor.Config{DSN: dsn})
	require.NoError(t, err)
	defer m.Close()
	database := pgtest.Connect(t, dsn).Config().Database
	for name, s := range map[string]statement{"Rails": statements["Rails: migrations"], "a pair": statements["hand-written SQL: two ints"]} {
		conn, refused, err := s.lock(t.Context(), dsn+"&application_name=peer")
		require.NoError(t, err)
		require.False(t, refused)
		await.Until(t, patience, func() bool { // pictures are shared for a quarter of a second
			snapshot, err := m.Snapshot(t.Context())
			return assert.NoError(t, err) && slices.ContainsFunc(snapshot.Locks, func(l monitor.Lock) bool {
				return l.PID == conn.PgConn().PID() && l.Granted && l.ApplicationName == "peer" && l.Key.Text == s.key(database).String()
			})
		}, name)
		require.NoError(t, conn.Close(t.Context()))
	}
}

// docs/reference/keys-of-other-tools.md: the index waits for the tool, and the tool for the lock under which the index is built.
func TestNoIndexIsBuiltConcurrentlyUnderALockThatAToolWaitsForInOneStatement(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn, tool := pgtest.Connect(t, dsn), pgtest.Connect(t, dsn)
	_, err := conn.Exec(t.Context(), "CREATE TABLE rows (id int)")
	require.NoError(t, err)
	locks, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn})
	require.NoError(t, err)
	defer locks.Close()
	lock, err := locks.Acquire(t.Context(), namespace.SingleRaw(12345))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := tool.Exec(context.WithoutCancel(t.Context()), "SELECT pg_advisory_lock(12345)")
		ended <- err
	}()
	waiting(t, conn, namespace.SingleRaw(12345), 1)
	_, err = conn.Exec(t.Context(), "SET lock_timeout = '1500ms'") // longer than deadlock_timeout
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE INDEX CONCURRENTLY built ON rows (id)")
	require.ErrorContains(t, err, "55P03", "lock_timeout ends it, and no search for deadlocks did")
	require.NoError(t, lock.Release())
	require.NoError(t, <-ended)
}
