package scheduler

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// quick returns a config with shorter times than in production.
func quick(dsn, name string) Config {
	return Config{
		DSN: dsn, Node: name, ScheduleInterval: 20 * time.Millisecond,
		JobInterval: 10 * time.Millisecond, HeartbeatInterval: 100 * time.Millisecond,
	}
}

// A testNode is a node that serves in this process.
type testNode struct {
	*Node
	t    *testing.T
	url  string
	stop func()
}

// serve opens a node and lets it serve until stop, or the end of the test.
func serve(t *testing.T, db *dbtest.Database, name string) *testNode {
	t.Helper()
	n := &testNode{t: t}
	var err error
	n.Node, err = Open(t.Context(), quick(db.DSN, name))
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n.url = "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, n.Serve(ctx, listener))
		n.Close()
	}()
	n.stop = func() { cancel(); <-done }
	t.Cleanup(n.stop)
	return n
}

func (n *testNode) get(path string) demokit.Answer {
	return demokit.Do(n.t.Context(), http.MethodGet, n.url+path, nil)
}

// leads waits until one of these nodes leads, and returns it and the others.
func leads(t *testing.T, nodes ...*testNode) (leader *testNode, others []*testNode) {
	t.Helper()
	await.Until(t, await.Patience, func() bool {
		return slices.ContainsFunc(nodes, func(n *testNode) bool { return n.Elector().IsLeader() })
	}, "nobody leads")
	for _, n := range nodes {
		if n.Elector().IsLeader() {
			leader = n
		} else {
			others = append(others, n)
		}
	}
	return leader, others
}

// holder returns the session that holds the election lock, as "pid backend_start", or "" if there is none. It fails if
// there are several.
func holder(t *testing.T, db *dbtest.Database) string {
	t.Helper()
	number, id, _ := Schedulers.Tag().Pair()
	holders := dbtest.Ask[[]string](db, `SELECT coalesce(array_agg(format('%s %s', pid, backend_start)), '{}')
		FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE locktype = 'advisory' AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND classid = $1 AND objid = $2 AND objsubid = 2 AND granted`, number, id)
	require.LessOrEqual(t, len(holders), 1, "%q hold the lock", holders)
	return strings.Join(holders, "")
}

func TestScenario_AC3_TheLockIsHeldOnAConnectionThatDoesNothingElse(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	a := serve(t, db, "a")
	leads(t, a)
	before := holder(t, db)
	require.NotEmpty(t, before)
	for range 20 {
		require.Equal(t, http.StatusOK, a.get("/query?q=x").Status)
	}
	await.Until(t, await.Patience, func() bool { return dbtest.Ask[int](db, `SELECT count(*) FROM code.runs`) > 20 }, "the schedulers work")
	assert.Equal(t, before, holder(t, db), "the same session holds the lock all the time")

	pid, _, _ := strings.Cut(before, " ")
	assert.Equal(t, a.Identity(), dbtest.Ask[string](db, `SELECT application_name FROM pg_stat_activity WHERE pid = $1::int`, pid), "it is not one of the pool")
	await.Until(t, await.Patience, func() bool { // except for an occasional ping
		return dbtest.Ask[bool](db, `SELECT state = 'idle' AND xact_start IS NULL FROM pg_stat_activity WHERE pid = $1::int`, pid)
	}, "a session lock: there is no transaction")
	assert.Zero(t, dbtest.Ask[int](db, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1::int AND query LIKE '%code.%'`, pid), "nobody works on it")
	await.Until(t, await.Patience, func() bool {
		return dbtest.Ask[int](db, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`, a.Identity()+" work") > 0
	}, "the pool is another")
}

func TestScenario_AC3_AnExhaustedPoolCostsNoLeadership(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	a := serve(t, db, "a")
	leads(t, a)
	b := serve(t, db, "b")
	for range WorkConns {
		c, err := b.pool.Acquire(t.Context())
		require.NoError(t, err)
		t.Cleanup(c.Release) // before the node stops
	}
	a.stop()
	leads(t, b)
	assert.NotEmpty(t, holder(t, db))
}

func TestTheSchedulersDoTheirWork(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	a := serve(t, db, "a")
	db.Exec(`INSERT INTO code.queries (node, text, at) VALUES ('x', 'old', now() - interval '1 year')`)
	db.Exec(`INSERT INTO code.repos (name, imports) VALUES ('lib', '{}'), ('app', '{lib}')`)
	for what, sql := range map[string]string{
		"refresh, and a job for each":    `SELECT count(*) = 2 FROM code.repos WHERE refreshed_at IS NOT NULL`,
		"one job for each":               `SELECT count(*) = 2 FROM code.jobs`,
		"retention":                      `SELECT count(*) = 0 FROM code.queries WHERE text = 'old'`,
		"descriptions":                   `SELECT count(*) = 2 FROM code.repos WHERE description <> ''`,
		"a dependency":                   `SELECT count(*) = 1 FROM code.dependencies`,
		"runs in the term of the leader": `SELECT count(*) > 0 FROM code.runs`,
	} {
		await.Until(t, await.Patience, func() bool { return dbtest.Ask[bool](db, sql) }, what)
	}
	assert.Equal(t, int64(a.Elector().Term().Uint64()), dbtest.Ask[int64](db, `SELECT DISTINCT term FROM code.runs`))
	db.Exec(`UPDATE code.repos SET imports = '{}'`)
	await.Until(t, await.Patience, func() bool { return dbtest.Ask[int](db, `SELECT count(*) FROM code.dependencies`) == 0 }, "what is not imported any more is off the map")
}

func TestASchedulerOfADeposedLeaderCannotWrite(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	old, others := leads(t, serve(t, db, "a"), serve(t, db, "b"))
	once, err := old.leaderOnly("once", func(context.Context, pgx.Tx) error { return nil }).New(t.Context())
	require.NoError(t, err)
	term := context.WithoutCancel(old.Elector().Context()) // as seen by a program that does not check
	require.NoError(t, once.(*scheduler).run(term), "while it leads")
	require.NoError(t, old.Elector().StepDown(t.Context()))
	leads(t, others...)
	require.ErrorIs(t, once.(*scheduler).run(term), leader.ErrNotLeader)
	assert.Equal(t, 1, dbtest.Ask[int](db, `SELECT count(*) FROM code.runs WHERE scheduler = 'once'`))
}
