package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
)

const (
	skipping       = "not leader, skipping scheduler startup"
	acquired       = "acquired leadership, starting schedulers"
	built          = "scheduler_built"
	serviceStarted = "service started"
	ran            = `SELECT count(DISTINCT scheduler) FROM code.runs WHERE node = $1`
)

// leaderOnly are the schedulers of the leader, in the order of their start.
var leaderOnly = []string{"refresh", "data_retention", "description_hook", "dependency_map"}

func TestMain(m *testing.M) {
	demokit.ServeNode(serveChild)
	pgtest.Main(m)
}

// serveChild is a node in a process of its own.
func serveChild(ctx context.Context, n *demokit.Node) error {
	config := quick(n.DSN, n.Name)
	config.Logger = n.Log
	node, err := Open(ctx, config)
	if err != nil {
		return err
	}
	defer node.Close()
	listener, err := n.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	return node.Serve(ctx, listener)
}

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
	log  demokit.Log
	stop func()
}

// serve opens a node and lets it serve until stop, or the end of the test.
func serve(t *testing.T, db *dbtest.Database, name string) *testNode {
	t.Helper()
	n := &testNode{t: t, log: demokit.Log{Text: new(capture.Text)}}
	config := quick(db.DSN, name)
	config.Logger = slog.New(slog.NewJSONHandler(n.log, nil))
	var err error
	n.Node, err = Open(t.Context(), config)
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

// says waits until a node has logged a message so often.
func (n *testNode) says(message string, times int) {
	n.t.Helper()
	await.Until(n.t, await.Patience, func() bool { return len(n.log.Values(message, "service")) == times }, fmt.Sprintf("%s logs %q %d times", n.Identity(), message, times))
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

func TestScenario_AC1_OneNodeAcquiresTheSchedulerLeadership(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	nodes := make([]*testNode, 3)
	var starting sync.WaitGroup
	for i, name := range []string{"a", "b", "c"} {
		starting.Go(func() { nodes[i] = serve(t, db, name) })
	}
	starting.Wait()
	winner, losers := leads(t, nodes...)
	require.Len(t, losers, 2, "exactly one node succeeds")
	await.Until(t, await.Patience, func() bool { return dbtest.Ask[int](db, ran, winner.Identity()) == len(leaderOnly) }, "the winner runs every scheduler")
	for _, n := range losers {
		n.says(skipping, 1)
		assert.Empty(t, n.log.Values(built, "service"), "a loser builds no scheduler")
		var reply Reply
		n.get("/query?q=x").Decode(&reply)
		assert.Equal(t, n.Identity(), reply.Node, "a loser serves queries")
	}
	assert.Equal(t, winner.Identity(), dbtest.Ask[string](db, `SELECT string_agg(DISTINCT node, ' ') FROM code.runs`))
}

func TestScenario_AC2_SchedulerServicesAreGatedByLeadership(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	a := serve(t, db, "a")
	leads(t, a)
	b := serve(t, db, "b")
	b.says(skipping, 1)
	a.says(acquired, 1)
	a.says(serviceStarted, len(leaderOnly))
	assert.Equal(t, leaderOnly, a.log.Values(built, "service"))
	assert.Empty(t, a.log.Values(skipping, "service"))
	assert.Empty(t, b.log.Values(acquired, "service"))
	assert.Empty(t, b.log.Values(built, "service"), "a follower does not initialise: it does not pause what it never made")
	assert.True(t, a.Elector().IsLeader())
	assert.False(t, b.Elector().IsLeader())

	require.NoError(t, a.Elector().StepDown(t.Context()))
	b.says(acquired, 1)
	b.says(serviceStarted, len(leaderOnly))
	a.says(skipping, 1)
	stopped := a.log.Values("service stopped", "service")
	slices.Reverse(stopped)
	assert.Equal(t, leaderOnly, stopped, "stopped in reverse")
	assert.Len(t, b.log.Values(skipping, "service"), 1, "once, however often it tried")
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

func TestScenario_AC4_TheLockIsReleasedWhenTheLeaderCrashes(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	child := demokit.Start(t, db.DSN, "child")
	child.Await(0, acquired)
	b := serve(t, db, "b")
	b.says(skipping, 1)
	before := holder(t, db)
	require.NotEmpty(t, before, "the child leads")

	killed := time.Now()
	child.Kill() // kill -9
	leads(t, b)
	assert.Less(t, time.Since(killed), driver.DefaultLeaseDuration, "no lease had to pass: the end of the connection freed the lock")
	after := holder(t, db)
	assert.NotEmpty(t, after)
	assert.NotEqual(t, before, after)
	await.Until(t, await.Patience, func() bool { return dbtest.Ask[int](db, ran, b.Identity()) == len(leaderOnly) }, "b runs every scheduler")
	assert.Zero(t, dbtest.Ask[int](db, `SELECT count(*) FILTER (WHERE term < last)
		FROM (SELECT term, lag(term) OVER (ORDER BY id) AS last FROM code.runs) r`), "terms never go back")
}

// Which services run where.
func TestServicesOfTheLeaderAndOfAllNodes(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	first, others := leads(t, serve(t, db, "a"), serve(t, db, "b"))
	db.Exec(`INSERT INTO code.repos (name) SELECT 'repo-' || n FROM generate_series(1, 50) n`)
	answers := func(path string) func(*testNode) bool {
		return func(n *testNode) bool { return n.get(path).Status == http.StatusOK }
	}
	exists := func(sql string) func(*testNode) bool {
		return func(n *testNode) bool { return dbtest.Ask[bool](db, `SELECT EXISTS (`+sql+`)`, n.Identity()) }
	}
	for name, service := range map[string]struct {
		allNodes bool
		runs     func(*testNode) bool
	}{
		"refresh":          {false, exists(`SELECT FROM code.runs WHERE scheduler = 'refresh' AND node = $1`)},
		"data retention":   {false, exists(`SELECT FROM code.runs WHERE scheduler = 'data_retention' AND node = $1`)},
		"description hook": {false, exists(`SELECT FROM code.runs WHERE scheduler = 'description_hook' AND node = $1`)},
		"dependency map":   {false, exists(`SELECT FROM code.runs WHERE scheduler = 'dependency_map' AND node = $1`)},
		"query serving": {true, func(n *testNode) bool {
			var reply Reply
			n.get("/query?q=repo").Decode(&reply)
			return len(reply.Repos) == 50
		}},
		"job claiming and execution": {true, func(n *testNode) bool {
			db.Exec(`INSERT INTO code.jobs (repo_id, work) SELECT id, interval '20 ms' FROM code.repos LIMIT 2`) // the other node may have done all others
			return exists(`SELECT FROM code.jobs WHERE node = $1 AND state = 'done'`)(n)
		}},
		"heartbeat":            {true, exists(`SELECT FROM code.heartbeats WHERE node = $1`)},
		"health":               {true, answers("/healthz")},
		"readiness":            {true, answers("/readyz")},
		"liveness":             {true, answers("/livez")},
		"the leader's address": {false, answers("/leader")},
	} {
		await.Until(t, await.Patience, func() bool { return service.runs(first) }, name+" on the leader")
		if service.allNodes {
			await.Until(t, await.Patience, func() bool { return service.runs(others[0]) }, name+" on the follower")
		} else {
			assert.False(t, service.runs(others[0]), "%s on the follower", name)
		}
	}
}

func TestReconciliationGivesAJobOfADeadNodeToAnother(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	a := serve(t, db, "a")
	db.Exec(`INSERT INTO code.repos (name) VALUES ('repo')`)
	db.Exec(`INSERT INTO code.heartbeats VALUES ('dead', now() - interval '1 h')`)
	db.Exec(`INSERT INTO code.jobs (repo_id, state, node) SELECT id, 'running', 'dead' FROM code.repos`)
	await.Until(t, await.Patience, func() bool {
		return dbtest.Ask[bool](db, `SELECT EXISTS (SELECT FROM code.jobs WHERE id = 1 AND state = 'done' AND node = $1)`, a.Identity())
	}, "the job is done by a")
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
