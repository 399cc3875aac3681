package advisory_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/namespace"
)

func TestOpenRefusesBadConfigs(t *testing.T) {
	t.Parallel()
	const dsn = "postgres://127.0.0.1:1/db"
	named, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	named.RuntimeParams["application_name"] = "a\x00b"
	for _, row := range []struct {
		field, says string
		config      advisory.Config
	}{
		{"DSN", "", advisory.Config{}},
		{"ConnConfig", "", advisory.Config{ConnConfig: &pgx.ConnConfig{}}},
		{"MaxConns", "", advisory.Config{DSN: dsn, MaxConns: -1}},
		{"MaxConns", "LocksPerConn", advisory.Config{DSN: dsn, LocksPerConn: 3, MaxConns: 1}}, // one of them is for waits
		{"LocksPerConn", "", advisory.Config{DSN: dsn, LocksPerConn: 131_073}},
		{"MaxLocks", "", advisory.Config{DSN: dsn, LocksPerConn: 2, MaxLocks: -1}},
		{"Wait", "", advisory.Config{DSN: dsn, Wait: -time.Second}},
		{"SessionTTL", "", advisory.Config{DSN: dsn, SessionTTL: time.Millisecond}},
		{"ApplicationName", `"a\x00b"`, advisory.Config{DSN: dsn, ApplicationName: "a\x00b"}},
		{"ApplicationName", `"\xff"`, advisory.Config{DSN: dsn, ApplicationName: "\xff"}},
		{"application_name", `"a\x00b"`, advisory.Config{ConnConfig: named}},
	} {
		_, err := advisory.Open(t.Context(), row.config)
		var configError *advisory.ConfigError
		require.ErrorAs(t, err, &configError, row.field)
		require.Equal(t, row.field, configError.Field)
		require.ErrorContains(t, err, row.says)
	}
}

func TestErrorsOfOpenNeverCarryThePassword(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close()) // nobody listens there now
	for _, dsn := range []string{
		"postgres://user:sEcReT@" + listener.Addr().String() + "/db?connect_timeout=1",
		"postgres://user:sEcReT@[::1/db",
		"postgres://user:sEcReT%zz@127.0.0.1/db",
		"host=127.0.0.1 user=u password=sEcReT port=nope",
		"host=127.0.0.1 user=u password='sEcReT",
		"sEcReT",
	} {
		_, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "sEcReT", "for %q", dsn)
	}
}

func TestAnUnreachableServerAndOneThatRefusesAreTyped(t *testing.T) {
	t.Parallel()
	_, err := advisory.Open(t.Context(), advisory.Config{DSN: "postgres://u:p@127.0.0.1:1/db?connect_timeout=1"})
	require.ErrorIs(t, err, advisory.ErrUnavailable)

	server := pgtest.StartServer(t, pgserver.Options{})
	cc, err := pgx.ParseConfig(server.DSN(""))
	require.NoError(t, err)
	admin, err := pgx.ConnectConfig(t.Context(), cc)
	require.NoError(t, err)
	defer admin.Close(context.Background())
	_, err = admin.Exec(t.Context(), `CREATE ROLE locked LOGIN PASSWORD 'right'; ALTER ROLE locked NOLOGIN`)
	require.NoError(t, err)
	cc.User, cc.Password = "locked", "sEcReT"
	_, err = advisory.Open(t.Context(), advisory.Config{ConnConfig: cc})
	require.ErrorIs(t, err, advisory.ErrRefused)
	require.NotErrorIs(t, err, advisory.ErrUnavailable)
	require.ErrorContains(t, err, `advisory: opening: role "locked" is not permitted to log in`)
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "28000", pgErr.Code)
	require.NotContains(t, err.Error(), "sEcReT")
}

func TestAHolderWithoutANameIsItsProgramAndItsHost(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		a, b := open(t, advisory.Config{DSN: dsn}), open(t, advisory.Config{DSN: dsn})
		lock, err := a.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		defer lock.Release()
		eventually(t, func() bool { // a busy machine does not always say who
			var held *advisory.HeldError
			_, err = b.TryAcquire(t.Context(), agents.ID(1))
			return errors.As(err, &held) && held.Holder != nil
		})
		host, _ := os.Hostname()
		require.ErrorContains(t, err, "("+pgsession.ApplicationName(filepath.Base(os.Args[0])+"@"+host)+")")
		_, err = a.TryAcquire(t.Context(), agents.ID(1))
		require.ErrorContains(t, err, "("+pgsession.ApplicationName(filepath.Base(os.Args[0])+"@"+host)+")", "also what this process knows by itself")
	})
}

func TestBadArgumentsOfCallsAreTypedAndLockNothing(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		ctx := t.Context()
		_, err := l.Acquire(ctx, namespace.Key{})
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		_, err = l.Acquire(ctx, namespace.Namespace{}.ID(1))
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		_, err = l.AcquireAll(ctx)
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		require.ErrorContains(t, err, "no key: there is nothing to lock: give at least one")
		_, err = l.AcquireAll(ctx, agents.ID(1), namespace.Key{})
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		_, err = l.AcquireSlot(ctx, namespace.Pair(1, 2), 2)
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		var configError *advisory.ConfigError
		for _, n := range []int{-1, 0, 1001} {
			_, err = l.AcquireSlot(ctx, agents.ID(1), n)
			require.ErrorAs(t, err, &configError)
			require.Equal(t, "n", configError.Field)
		}
		_, err = l.With(advisory.Options{Shared: true}).AcquireSlot(ctx, agents.ID(1), 2)
		require.ErrorAs(t, err, &configError)
		require.Equal(t, "Options.Shared", configError.Field)
		_, err = l.With(advisory.Options{Wait: -1}).Acquire(ctx, agents.ID(1))
		require.ErrorAs(t, err, &configError)
		require.Equal(t, "Options.Wait", configError.Field)
		err = l.Do(ctx, agents.ID(1), nil)
		require.ErrorAs(t, err, &configError)
		require.EqualError(t, err, "advisory: fn is nil: give the function that does the work, or call Acquire to do it elsewhere")
		ran, err := l.DoOrSkip(ctx, agents.ID(1), nil)
		require.ErrorAs(t, err, &configError)
		require.False(t, ran)
		require.Zero(t, locks(t, work, true))

		canceled, cancel := context.WithCancel(ctx)
		cancel()
		_, err = l.Acquire(canceled, agents.ID(1))
		require.ErrorIs(t, err, context.Canceled)

		l.Close()
		err = l.Do(ctx, agents.ID(1), func(context.Context) error { return nil })
		require.ErrorIs(t, err, advisory.ErrClosed)
		require.EqualError(t, err, "advisory: lock agent/1: the Locker is closed: call Close after its last use, or Open another")
	})
}

func TestAFullLockTableIsTypedAndTheLockerRecovers(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_locks_per_transaction": "10", "max_connections": "20"}})
		dsn := server.DSN("")
		l, work := open(t, advisory.Config{DSN: dsn}), dbtest.Pool(t, dsn)
		conn, err := work.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		lock, err := l.Acquire(t.Context(), agents.ID(1)) // both connections are made: the server takes no new ones then
		require.NoError(t, err)
		require.NoError(t, lock.Release())
		eventually(t, func() bool { // a login or an autovacuum that ends after the statement leaves room for a lock
			_, err = conn.Exec(t.Context(), "SELECT pg_advisory_lock(2, i) FROM generate_series(1, 100000) AS i")
			pgErr, ok := errors.AsType[*pgconn.PgError](err)
			if !assert.True(t, ok, "%v", err) || !assert.Equal(t, "53200", pgErr.Code) {
				return true
			}
			lock, err = l.Acquire(t.Context(), agents.ID(1))
			return err != nil || !assert.NoError(t, lock.Release())
		})
		require.ErrorIs(t, err, advisory.ErrLockTableFull)
		require.ErrorContains(t, err, "max_locks_per_transaction")
		_, err = conn.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
		require.NoError(t, err)
		lock, err = l.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		require.NoError(t, lock.Release())
	})
}

func TestATimeoutOfASemaphoreNamesItsHoldersAndItsSlots(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		one := open(t, advisory.Config{DSN: dsn, ApplicationName: "billing@web-1"})
		two := open(t, advisory.Config{DSN: dsn, ApplicationName: "billing@web-2"})
		for i, l := range []*advisory.Locker{one, two, two} {
			slot, err := l.AcquireSlot(t.Context(), agents.ID(1), 3)
			require.NoError(t, err, i)
			defer slot.Release()
		}
		third := open(t, advisory.Config{DSN: dsn})
		for _, l := range []*advisory.Locker{third, one} { // one also knows of its own
			var err error
			var timeout *advisory.TimeoutError
			await.Until(t, await.Patience, func() bool { // the names are a courtesy: a busy server is not waited for
				_, err = l.With(advisory.Options{Wait: 300 * time.Millisecond}).AcquireSlot(t.Context(), agents.ID(1), 3)
				return errors.As(err, &timeout) && len(timeout.Holders) == 3
			})
			require.ErrorAs(t, err, &timeout)
			require.Equal(t, 3, timeout.Slots)
			require.ErrorIs(t, err, advisory.ErrHeld)
			require.ErrorContains(t, err, "waiting for a slot of agent/1: 3 of 3 slots were held by backend ")
			require.Equal(t, 1, strings.Count(err.Error(), "(billing@web-1)"), err)
			require.Equal(t, 2, strings.Count(err.Error(), "(billing@web-2)"), err)
		}
	})
}
