package monitor_test

import (
	"context"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

func TestASnapshotTellsEverythingAboutAHeldPair(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m := open(t, monitor.Config{DSN: dsn})
	conn := clitest.Connect(t, dsn, "holder")
	before := serverNow(t, conn)
	lock(t, conn, agents.ID(42))

	s := snapshot(t, m)

	require.Len(t, s.Locks, 1)
	l := s.Locks[0]
	assert.Equal(t, pid(conn), l.PID)
	assert.Equal(t, "holder", l.ApplicationName)
	assert.Equal(t, "idle", *l.State)
	assert.Equal(t, "agent", *l.Namespace)
	assert.Equal(t, "42", *l.EntityID)
	assert.Equal(t, monitor.Key{Kind: "pair", Key1: new(int32(1)), Key2: new(int32(42)), Text: "agent/42"}, l.Key)
	assert.Equal(t, agents.ID(42).Tag(), l.Tag)
	assert.Equal(t, "ExclusiveLock", l.Mode)
	assert.True(t, l.Granted)
	assert.Nil(t, l.WaitStart)
	assert.Empty(t, l.BlockedBy)
	assert.Empty(t, l.Blocks)
	assert.Nil(t, l.ClientAddr)
	assert.Equal(t, monitor.SourceFirstSeen, l.HeldSince.Source)
	assertBetween(t, *l.QueryStart, l.HeldSince.At, s.Server.Now)
	assert.InDelta(t, s.Server.Now.Sub(l.HeldSince.At).Seconds(), l.Duration, 1e-9)
	assertBetween(t, before, *l.QueryStart, s.Server.Now)
	assert.False(t, l.BackendStart.After(before))

	assert.Equal(t, conn.PgConn().ParameterStatus("server_version"), s.Server.Version)
	assert.Equal(t, conn.Config().Database, s.Server.Database)
	assert.False(t, s.Partial)
	assert.Empty(t, s.Hidden)
	for _, at := range []time.Time{*l.QueryStart, *l.BackendStart, s.Server.Now, l.HeldSince.At} {
		assert.Equal(t, time.UTC, at.Location())
	}
}

func TestASnapshotOfNothingIsEmptyAndNotNull(t *testing.T) {
	t.Parallel()
	s := snapshot(t, open(t, monitor.Config{DSN: pgtest.DSN(t)}))
	assert.NotNil(t, s.Locks)
	assert.Zero(t, s.Total)
	assert.NotEmpty(t, s.Server.Version)
}

func TestEveryKeyIsShownAsItWasTaken(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m := open(t, monitor.Config{DSN: dsn})
	conn := clitest.Connect(t, dsn, "")
	text, err := agents.Text("acme/eu")
	require.NoError(t, err)
	hashed, _ := text.Tag().Single()
	single := func(k int64, ns *string) monitor.Lock {
		return monitor.Lock{Namespace: ns, Key: monitor.Key{Kind: "single", Bigint: &k, Text: namespace.SingleRaw(k).String()}}
	}
	pair := func(k1, k2 int32, ns, entity, text string) monitor.Lock {
		return monitor.Lock{Namespace: &ns, EntityID: &entity, Key: monitor.Key{Kind: "pair", Key1: &k1, Key2: &k2, Text: text}}
	}
	want := map[namespace.Tag]monitor.Lock{}
	for k, l := range map[namespace.Key]monitor.Lock{
		namespace.SingleRaw(math.MinInt64): single(math.MinInt64, nil),
		namespace.SingleRaw(math.MaxInt64): single(math.MaxInt64, nil),
		namespace.SingleRaw(-1):            single(-1, nil),
		namespace.SingleRaw(1 << 31):       single(1<<31, nil),
		text:                               single(hashed, new("agent")),
		agents.ID(-1):                      pair(1, -1, "agent", "-1", "agent/-1"),
		orders.ID(math.MinInt32):           pair(2, math.MinInt32, "order", "-2147483648", "order/-2147483648"),
		namespace.Pair(7, 9):               pair(7, 9, "7", "9", "7:9"),
		namespace.Pair(-1, 0):              pair(-1, 0, "-1", "0", "-1:0"),
	} {
		lock(t, conn, k)
		want[k.Tag()] = l
	}

	s := snapshot(t, m)

	require.Len(t, s.Locks, len(want))
	for i, l := range s.Locks {
		w := want[l.Tag]
		assert.Equal(t, w.Key, l.Key)
		assert.Equal(t, w.Namespace, l.Namespace)
		assert.Equal(t, w.EntityID, l.EntityID)
		if i > 0 {
			assert.Negative(t, s.Locks[i-1].Tag.Compare(l.Tag), "in the order of the keys")
		}
	}
}

func TestWaitersAreShownInTheOrderOfTheirQueueWithWhomTheyWaitFor(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m := open(t, monitor.Config{DSN: dsn})
	holder, first, second := clitest.Connect(t, dsn, "holder"), clitest.Connect(t, dsn, "first"), clitest.Connect(t, dsn, "second")
	p0, p1, p2 := pid(holder), pid(first), pid(second)
	key := agents.ID(1 << 40)
	lock(t, holder, key)
	lock(t, holder, agents.ID(7)) // nobody waits for this one
	wait(t, dsn, first, key)
	wait(t, dsn, second, key)

	s := snapshot(t, m)

	require.Len(t, s.Locks, 4)
	h, w1, w2, other := s.Locks[0], s.Locks[1], s.Locks[2], s.Locks[3]
	assert.Equal(t, []uint32{p0, p1, p2, p0}, []uint32{h.PID, w1.PID, w2.PID, other.PID})
	assert.Equal(t, []bool{true, false, false, true}, []bool{h.Granted, w1.Granted, w2.Granted, other.Granted})
	assert.Empty(t, h.BlockedBy)
	assert.Equal(t, []uint32{p0}, w1.BlockedBy)
	assert.ElementsMatch(t, []uint32{p0, p1}, w2.BlockedBy, "those ahead in the queue block, too")
	assert.Equal(t, []uint32{p1, p2}, h.Blocks)
	assert.Equal(t, []uint32{p2}, w1.Blocks)
	assert.Empty(t, w2.Blocks)
	assert.Empty(t, other.Blocks, "blocks is told key by key")
	assert.True(t, w1.WaitStart.Before(*w2.WaitStart))
	for _, w := range []monitor.Lock{w1, w2} {
		assert.Equal(t, "active", *w.State)
		assert.Nil(t, w.HeldSince)
		assert.InDelta(t, s.Server.Now.Sub(*w.WaitStart).Seconds(), w.Duration, 1e-9)
		assert.Positive(t, w.Duration)
	}
}

func TestSharedHoldersAreShownTogether(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m := open(t, monitor.Config{DSN: dsn})
	a, b := clitest.Connect(t, dsn, "a"), clitest.Connect(t, dsn, "b")
	for _, conn := range []*pgx.Conn{a, b} {
		run(t, conn, lockSQL("pg_advisory_lock_shared", agents.ID(1)))
	}
	s := snapshot(t, m)
	require.Len(t, s.Locks, 2)
	for _, l := range s.Locks {
		assert.Equal(t, "ShareLock", l.Mode)
		assert.True(t, l.Granted)
		assert.Empty(t, l.Blocks)
	}
}

func TestALockIsHeldSinceTheMonitorFirstSawIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m := open(t, monitor.Config{DSN: dsn})
	conn := clitest.Connect(t, dsn, "")
	lock(t, conn, agents.ID(1))
	first := snapshot(t, m)
	second := snapshot(t, m)
	since := first.Locks[0].HeldSince.At
	assertBetween(t, *first.Locks[0].QueryStart, since, first.Server.Now)
	assert.Equal(t, since, second.Locks[0].HeldSince.At)
	assert.InDelta(t, second.Server.Now.Sub(since).Seconds(), second.Locks[0].Duration, 1e-9)

	run(t, conn, lockSQL("pg_advisory_unlock", agents.ID(1)))
	assert.Empty(t, snapshot(t, m).Locks)
	lock(t, conn, agents.ID(1))
	again := snapshot(t, m)
	assertBetween(t, *again.Locks[0].QueryStart, again.Locks[0].HeldSince.At, again.Server.Now)
	assert.True(t, again.Locks[0].HeldSince.At.After(since), "another hold, another first sight")
}

func TestLocksOfAnotherDatabaseAreNotShown(t *testing.T) {
	t.Parallel()
	here, there := pgtest.DSN(t), pgtest.DSN(t)
	lock(t, clitest.Connect(t, there, ""), agents.ID(1))
	assert.Empty(t, snapshot(t, open(t, monitor.Config{DSN: here})).Locks)
	assert.Len(t, snapshot(t, open(t, monitor.Config{DSN: there})).Locks, 1)
}

func TestTheClientsAddressIsShownOnlyOnRequest(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := clitest.Connect(t, dsn, "")
	lock(t, conn, agents.ID(1))
	var want *netip.Addr
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT inet_client_addr()`).Scan(&want))

	assert.Nil(t, snapshot(t, open(t, monitor.Config{DSN: dsn})).Locks[0].ClientAddr)
	assert.Equal(t, want, snapshot(t, open(t, monitor.Config{DSN: dsn, ClientAddr: true})).Locks[0].ClientAddr)
}

func TestRedactHidesAnEntityEverywhere(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := clitest.Connect(t, dsn, "")
	for _, k := range []namespace.Key{agents.ID(1947110011), orders.ID(1947120022), namespace.Pair(9, 1947130033)} {
		lock(t, conn, k)
	}
	m := open(t, monitor.Config{DSN: dsn, Redact: func(ns, id string) string {
		if ns == "order" {
			return id
		}
		return "…"
	}})

	s := snapshot(t, m)

	require.Len(t, s.Locks, 3)
	assert.Equal(t, monitor.Key{Kind: "pair", Key1: new(int32(1)), Text: "agent/…"}, s.Locks[0].Key)
	assert.Equal(t, "…", *s.Locks[0].EntityID)
	assert.Equal(t, "order/1947120022", s.Locks[1].Key.Text)
	assert.Equal(t, int32(1947120022), *s.Locks[1].Key.Key2)
	assert.Equal(t, "9:…", s.Locks[2].Key.Text)
	body := get(t, m.Handler(), "/api/advisory-locks").Body.String()
	assert.NotContains(t, body, "1947110011")
	assert.NotContains(t, body, "1947130033")
	assert.Contains(t, body, "1947120022")
}

func TestSettingsOfTheDatabaseChangeNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	admin := clitest.Connect(t, dsn, "")
	run(t, admin, `CREATE SCHEMA evil`)
	run(t, admin, `CREATE VIEW evil.pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE false`)
	run(t, admin, `CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'`)
	run(t, admin, `CREATE FUNCTION evil.eq(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false'`)
	run(t, admin, `CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = text, RIGHTARG = text)`)
	database := pgx.Identifier{admin.Config().Database}.Sanitize()
	for _, setting := range []string{
		`search_path = evil, pg_catalog`, `datestyle = 'SQL, DMY'`, `timezone = 'Asia/Kathmandu'`, `idle_session_timeout = '10s'`,
		`default_transaction_isolation = serializable`, `bytea_output = escape`, `intervalstyle = sql_standard`,
	} {
		run(t, admin, `ALTER DATABASE `+database+` SET `+setting)
	}
	lock(t, admin, agents.ID(42)) // on a session from before the settings
	var fooled int
	require.NoError(t, clitest.Connect(t, dsn, "").QueryRow(t.Context(), `SELECT count(*) FROM pg_locks`).Scan(&fooled))
	require.Zero(t, fooled, "control: the settings fool others")
	m := open(t, monitor.Config{DSN: dsn})
	for range 3 {
		s := snapshot(t, m)
		require.Len(t, s.Locks, 1)
		assert.WithinDuration(t, time.Now(), s.Server.Now, time.Hour)
		assertBetween(t, s.Server.Now.Add(-time.Hour), *s.Locks[0].QueryStart, s.Server.Now)
	}
}

func TestTheMonitorsSettingsEndWithItsQuery(t *testing.T) {
	t.Parallel()
	cc, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	settings := func(conn *pgconn.PgConn) (out []string) {
		for _, name := range []string{"search_path", "transaction_read_only", "statement_timeout", "lock_timeout", "datestyle"} {
			results, err := conn.Exec(t.Context(), "SHOW "+name).ReadAll()
			require.NoError(t, err)
			out = append(out, string(results[0].Rows[0][0]))
		}
		return out
	}
	var own *pgconn.PgConn
	cc.AfterConnect = func(_ context.Context, conn *pgconn.PgConn) error {
		own = conn
		return nil
	}
	snapshot(t, open(t, monitor.Config{ConnConfig: cc}))
	assert.Equal(t, settings(clitest.Connect(t, cc.ConnString(), "").PgConn()), settings(own), "a pooler may give this connection to another client")
}

func TestARoleWithoutRightsSeesWhoHoldsWhatAndLearnsWhatIsHidden(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_prepared_transactions": "2"}})
	admin := clitest.Connect(t, server.DSN(""), "admin")
	run(t, admin, `CREATE ROLE viewer LOGIN PASSWORD 'x'`)
	lock(t, admin, agents.ID(42))
	waiter := clitest.Connect(t, server.DSN(""), "waiter")
	wait(t, server.DSN(""), waiter, agents.ID(42))
	cc, err := pgx.ParseConfig(server.DSN(""))
	require.NoError(t, err)
	cc.User, cc.Password = "viewer", "x"
	m := open(t, monitor.Config{ConnConfig: cc, ClientAddr: true})

	s := snapshot(t, m)

	assert.True(t, s.Partial)
	assert.Equal(t, []string{"state", "query_start", "backend_start", "client_addr"}, s.Hidden)
	require.Len(t, s.Locks, 2)
	h, w := s.Locks[0], s.Locks[1]
	assert.Equal(t, pid(admin), h.PID)
	assert.Equal(t, "admin", h.ApplicationName)
	assert.Equal(t, "agent/42", h.Key.Text)
	assert.Nil(t, h.State)
	assert.Nil(t, h.QueryStart)
	assert.Nil(t, h.BackendStart)
	assert.Nil(t, h.ClientAddr)
	assert.Equal(t, []uint32{w.PID}, h.Blocks)
	assert.Equal(t, []uint32{h.PID}, w.BlockedBy)
	assert.NotNil(t, w.WaitStart)

	run(t, admin, `GRANT pg_read_all_stats TO viewer`)
	s = snapshot(t, m)
	assert.False(t, s.Partial, "control: with the right nothing is hidden")
	assert.Empty(t, s.Hidden)
	assert.Equal(t, "idle", *s.Locks[0].State)
}

func TestALockOfAPreparedTransactionHasNoProcess(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_prepared_transactions": "2"}})
	conn := clitest.Connect(t, server.DSN(""), "")
	run(t, conn, `BEGIN`)
	run(t, conn, lockSQL("pg_advisory_xact_lock", agents.ID(42)))
	run(t, conn, `PREPARE TRANSACTION 'forgotten'`)
	waiter := clitest.Connect(t, server.DSN(""), "waiter")
	wait(t, server.DSN(""), waiter, agents.ID(42))

	s := snapshot(t, open(t, monitor.Config{DSN: server.DSN("")}))

	require.Len(t, s.Locks, 2)
	h, w := s.Locks[0], s.Locks[1]
	assert.Zero(t, h.PID)
	assert.True(t, h.Granted)
	assert.Nil(t, h.State)
	assert.Equal(t, []uint32{w.PID}, h.Blocks)
	assert.Equal(t, []uint32{0}, w.BlockedBy)
	assert.False(t, s.Partial, "nothing was hidden: there is no session")
	run(t, conn, `ROLLBACK PREPARED 'forgotten'`)
}

func serverNow(t *testing.T, conn *pgx.Conn) (now time.Time) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now))
	return now
}

func assertBetween(t *testing.T, from, at, to time.Time) {
	t.Helper()
	assert.False(t, at.Before(from) || at.After(to), "%v is not in %v … %v", at, from, to)
}
