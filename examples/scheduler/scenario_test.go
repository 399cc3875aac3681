package scheduler_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/scheduler"
	"github.com/pglatch/pglatch/leader"
)

const (
	skipping  = "not leader, skipping scheduler startup"
	acquired  = "acquired leadership, starting schedulers"
	built     = "scheduler_built"
	scheduled = `SELECT count(DISTINCT scheduler) FROM code.runs WHERE node = $1`
)

// leaderOnly are the schedulers of the leader, in the order of their start.
var leaderOnly = []string{"refresh", "data_retention", "description_hook", "dependency_map"}

func TestScenario_AC1_OneNodeAcquiresTheSchedulerLeadership(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	nodes := make([]*node, 3)
	var starting sync.WaitGroup
	for i, name := range []string{"a", "b", "c"} {
		starting.Go(func() { nodes[i] = serve(t, quick(db.dsn, name)) })
	}
	starting.Wait()
	leads, losers := leaderOf(t, nodes...)
	require.Len(t, losers, 2, "exactly one node succeeds")
	eventually(t, func() bool { return ask[int](db, scheduled, leads.Identity())[0] == len(leaderOnly) }, "the winner runs every scheduler")
	for _, n := range losers {
		eventually(t, func() bool { return n.log.count(skipping) == 1 }, "a loser says so")
		assert.Zero(t, n.log.count(built), "a loser builds no scheduler")
		assert.Equal(t, n.Identity(), n.query("x").Node, "a loser serves queries")
	}
	assert.Equal(t, []string{leads.Identity()}, ask[string](db, `SELECT DISTINCT node FROM code.runs`))
}

func TestScenario_AC2_SchedulerServicesAreGatedByLeadership(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	a := serve(t, quick(db.dsn, "a"))
	leaderOf(t, a)
	b := serve(t, quick(db.dsn, "b"))
	eventually(t, func() bool { return b.log.count(skipping) == 1 }, "the follower logs that it skips")
	eventually(t, func() bool { return a.log.count("service started") == len(leaderOnly) }, "the leader starts all")
	assert.Equal(t, 1, a.log.count(acquired))
	assert.Zero(t, a.log.count(skipping))
	for _, name := range leaderOnly {
		assert.Equal(t, 1, a.log.count(built, "service="+name), name)
	}
	assert.Zero(t, b.log.count(acquired))
	assert.Zero(t, b.log.count(built), "a follower does not initialise: it does not pause what it never made")
	assert.True(t, a.Elector().IsLeader())
	assert.False(t, b.Elector().IsLeader())

	a.stop()
	leaderOf(t, b)
	eventually(t, func() bool { return b.log.count("service started") == len(leaderOnly) }, "the follower takes over")
	assert.Equal(t, 1, b.log.count(acquired))
	stopped := stoppedIn(a.log.String())
	slices.Reverse(stopped)
	assert.Equal(t, leaderOnly, stopped, "stopped in reverse")
}

// stoppedIn returns the services that stopped according to a log, in order.
func stoppedIn(log string) (names []string) {
	for line := range strings.Lines(log) {
		_, rest, found := strings.Cut(line, `msg="service stopped"`)
		_, name, has := strings.Cut(strings.TrimSpace(rest), "service=")
		if found && has {
			names = append(names, name)
		}
	}
	return names
}

func TestScenario_AC3_TheLockIsHeldOnAConnectionThatDoesNothingElse(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	a := serve(t, quick(db.dsn, "a"))
	leaderOf(t, a)
	holder := db.holder()
	require.NotEmpty(t, holder)
	for range 20 {
		a.query("x")
	}
	eventually(t, func() bool { return ask[int](db, `SELECT count(*) FROM code.runs`)[0] > 20 }, "the schedulers work")
	assert.Equal(t, holder, db.holder(), "the same session holds the lock all the time")

	pid, _, _ := strings.Cut(holder, " ")
	assert.Equal(t, []string{a.Identity()}, ask[string](db, `SELECT application_name FROM pg_stat_activity WHERE pid = $1::int`, pid), "it is not one of the pool")
	eventually(t, func() bool { // except for an occasional ping
		return ask[bool](db, `SELECT state = 'idle' AND xact_start IS NULL FROM pg_stat_activity WHERE pid = $1::int`, pid)[0]
	}, "a session lock: there is no transaction")
	assert.Zero(t, ask[int](db, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1::int AND query LIKE '%code.%'`, pid)[0], "nobody works on it")
	eventually(t, func() bool {
		return ask[int](db, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1`, a.Identity()+" work")[0] > 0
	}, "the pool is another")
}

func TestScenario_AC3_AnExhaustedPoolCostsNoLeadership(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	a := serve(t, quick(db.dsn, "a"))
	leaderOf(t, a)
	b := serve(t, quick(db.dsn, "b"))
	b.exhaustPool()
	a.stop()
	leaderOf(t, b)
	assert.NotEmpty(t, db.holder())
}

// exhaustPool takes all connections of the work pool until the end of the test.
func (n *node) exhaustPool() {
	n.t.Helper()
	for range scheduler.WorkConns {
		c, err := n.Pool().Acquire(n.t.Context())
		require.NoError(n.t, err)
		n.t.Cleanup(c.Release) // before the node stops
	}
}

func TestScenario_AC4_TheLockIsReleasedWhenTheLeaderCrashes(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	child := startChild(t, db.dsn)
	eventually(t, func() bool { return db.holder() != "" }, "the child leads")
	b := serve(t, quick(db.dsn, "b"))
	eventually(t, func() bool { return b.log.count(skipping) == 1 }, "b follows")
	before := db.holder()

	killed := time.Now()
	require.NoError(t, child.Process.Kill()) // kill -9
	leaderOf(t, b)
	took := time.Since(killed)
	t.Logf("kill -9 to leadership of the follower: %v", took.Round(time.Microsecond))
	assert.Less(t, took, leader.DefaultLeaseDuration, "no lease had to pass: the end of the connection freed the lock")
	after := db.holder()
	assert.NotEmpty(t, after)
	assert.NotEqual(t, before, after)
	eventually(t, func() bool { return ask[int](db, scheduled, b.Identity())[0] == len(leaderOnly) }, "b runs every scheduler")
	assert.Empty(t, ask[int](db, `SELECT id FROM (SELECT id, term, lag(term) OVER (ORDER BY id) AS last FROM code.runs) r
		WHERE term < last`), "terms never go back")
}

// startChild starts a node in a process of its own, and returns when it leads.
func startChild(t *testing.T, dsn string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), self)
	child.Env = append(os.Environ(), childDSN+"="+dsn)
	life, err := child.StdinPipe()
	require.NoError(t, err)
	log, err := child.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = life.Close()
		_ = child.Wait()
	})
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var entry struct{ Msg string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == acquired {
			return child
		}
	}
	require.Fail(t, "the child ended")
	return nil
}

// Which services run where.
func TestServicesOfTheLeaderAndOfAllNodes(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	a, b := serve(t, quick(db.dsn, "a")), serve(t, quick(db.dsn, "b"))
	leads, others := leaderOf(t, a, b)
	nodes := []*node{leads, others[0]}
	db.exec(`INSERT INTO code.repos (name) SELECT 'repo-' || n FROM generate_series(1, 50) n`)
	db.exec(`INSERT INTO code.jobs (repo_id, work) SELECT id, interval '20 ms' FROM code.repos`)
	answers := func(path string, want int) func(*node) bool {
		return func(n *node) bool { code, _ := n.get(path); return code == want }
	}
	schedules := func(name string) func(*node) bool {
		return func(n *node) bool {
			return ask[bool](db, `SELECT EXISTS (SELECT FROM code.runs WHERE scheduler = $1 AND node = $2)`, name, n.Identity())[0]
		}
	}
	for _, service := range []struct {
		name     string
		allNodes bool
		runs     func(*node) bool
	}{
		{"refresh", false, schedules("refresh")},
		{"data retention", false, schedules("data_retention")},
		{"description hook", false, schedules("description_hook")},
		{"dependency map", false, schedules("dependency_map")},
		{"query serving", true, func(n *node) bool { return len(n.query("repo").Repos) == 50 }},
		{"job claiming and execution", true, func(n *node) bool {
			db.exec(`INSERT INTO code.jobs (repo_id, work) SELECT id, interval '20 ms' FROM code.repos LIMIT 1`) // the other node may have done all others
			return ask[bool](db, `SELECT EXISTS (SELECT FROM code.jobs WHERE node = $1 AND state = 'done')`, n.Identity())[0]
		}},
		{"heartbeat", true, func(n *node) bool {
			return ask[bool](db, `SELECT EXISTS (SELECT FROM code.heartbeats WHERE node = $1)`, n.Identity())[0]
		}},
		{"health", true, answers("/healthz", http.StatusOK)},
		{"readiness", true, answers("/readyz", http.StatusOK)},
		{"liveness", true, answers("/livez", http.StatusOK)},
		{"the leader's address", false, answers("/leader", http.StatusOK)},
	} {
		eventually(t, func() bool { return service.runs(nodes[0]) }, "%s on the leader", service.name)
		if service.allNodes {
			eventually(t, func() bool { return service.runs(nodes[1]) }, "%s on the follower", service.name)
		} else {
			assert.False(t, service.runs(nodes[1]), "%s on the follower", service.name)
		}
	}
}

func TestReconciliationGivesAJobOfADeadNodeToAnother(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	a := serve(t, quick(db.dsn, "a"))
	db.exec(`INSERT INTO code.repos (name) VALUES ('repo')`)
	db.exec(`INSERT INTO code.heartbeats VALUES ('dead', now() - interval '1 h')`)
	db.exec(`INSERT INTO code.jobs (repo_id, state, node) SELECT id, 'running', 'dead' FROM code.repos`)
	eventually(t, func() bool {
		return slices.Equal(ask[string](db, `SELECT node FROM code.jobs WHERE state = 'done' LIMIT 1`), []string{a.Identity()})
	}, "the job is done by a")
}

func TestTheSchedulersDoTheirWork(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	a := serve(t, quick(db.dsn, "a"))
	db.exec(`INSERT INTO code.queries (node, text, at) VALUES ('x', 'old', now() - interval '1 year')`)
	db.exec(`INSERT INTO code.repos (name, imports) VALUES ('lib', '{}'), ('app', '{lib}')`)
	for what, sql := range map[string]string{
		"refresh, and a job for each":    `SELECT count(*) = 2 FROM code.repos WHERE refreshed_at IS NOT NULL`,
		"one job for each":               `SELECT count(*) = 2 FROM code.jobs`,
		"retention":                      `SELECT count(*) = 0 FROM code.queries WHERE text = 'old'`,
		"descriptions":                   `SELECT count(*) = 2 FROM code.repos WHERE description <> ''`,
		"a dependency":                   `SELECT count(*) = 1 FROM code.dependencies`,
		"runs in the term of the leader": `SELECT count(*) > 0 FROM code.runs`,
	} {
		eventually(t, func() bool { return ask[bool](db, sql)[0] }, "%s", what)
	}
	assert.Equal(t, []int64{int64(a.Elector().Term().Uint64())}, ask[int64](db, `SELECT DISTINCT term FROM code.runs`))
	db.exec(`UPDATE code.repos SET imports = '{}'`)
	eventually(t, func() bool { return ask[int](db, `SELECT count(*) FROM code.dependencies`)[0] == 0 }, "what is not imported any more is off the map")
}

func TestASchedulerOfADeposedLeaderCannotWrite(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	a, b := serve(t, quick(db.dsn, "a")), serve(t, quick(db.dsn, "b"))
	old, others := leaderOf(t, a, b)
	term := context.WithoutCancel(old.Elector().Context()) // as seen by a program that does not check
	require.NoError(t, old.RunOnce(term), "while it leads")
	require.NoError(t, old.Elector().StepDown(t.Context()))
	leaderOf(t, others...)
	require.ErrorIs(t, old.RunOnce(term), leader.ErrNotLeader)
	assert.Equal(t, 1, ask[int](db, `SELECT count(*) FROM code.runs WHERE scheduler = 'once'`)[0])
}
