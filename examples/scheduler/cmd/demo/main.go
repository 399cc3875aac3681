// Command demo shows, on a real PostgreSQL, which of two nodes of examples/scheduler
// runs the schedulers, and what happens when it dies or is stopped:
//
//	go run ./examples/scheduler/cmd/demo         # and stay until Ctrl-C
//	go run ./examples/scheduler/cmd/demo -once   # exit 1 if a claim fails
//
// It starts PostgreSQL, or creates a database of its own on the server of
// PGLATCH_TEST_DATABASE_URL, and starts itself again as the nodes. All of them listen on
// loopback addresses and are gone when it ends.
package main

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/examples/scheduler"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/leader/driver"
)

// Messages that a node logs.
const (
	skipping       = "not leader, skipping scheduler startup"
	acquired       = "acquired leadership, starting schedulers"
	built          = "scheduler_built"
	serviceStarted = "service started"
	serviceStopped = "service stopped"
)

// schedulers are the services that run only on the leader, in the order of their start.
var schedulers = []string{"refresh", "data_retention", "description_hook", "dependency_map"}

// serve is the main function of a node. Its intervals are shorter than in production, so that the demo does not take long.
func serve(ctx context.Context, n *demokit.Node) error {
	node, err := scheduler.Open(ctx, scheduler.Config{
		DSN: n.DSN, Node: n.Name, Mount: os.TempDir(), MountLocal: true, // shared by both nodes on this host
		ScheduleInterval: 100 * time.Millisecond, JobInterval: 20 * time.Millisecond, HeartbeatInterval: 200 * time.Millisecond, Logger: n.Log,
	})
	return n.Run(ctx, node, err)
}

func main() {
	demokit.Main("pglatch: two nodes, one PostgreSQL, one of them schedules", "", serve, func(ctx context.Context, d *demokit.Demo) demokit.Story {
		demokit.Check(d.OpenDatabase())
		s := &demo{Demo: d}
		return demokit.Story{Stay: s.stay, Scenes: []demokit.Scene{
			{Title: "Two nodes start: one of them runs the schedulers", Play: s.elect},
			{Title: "Queries, jobs and heartbeats: both", Play: s.serveAll},
			{Title: "kill -9 of the leader: the follower takes over", Play: s.killed},
			{Title: "The killed node comes back: it follows", Play: s.restarted},
			{Title: "SIGTERM to the leader: a hand-over in good order", Play: s.terminated},
		}}
	})
}

// A demo is the state that the scenes share.
type demo struct {
	*demokit.Demo
	leader, follower *demokit.Process // as the previous scenes left them
}

// stay lets the user ask and kill the nodes.
func (d *demo) stay(ctx context.Context) {
	d.Say("ask the nodes for /leader, or kill them; Ctrl-C ends it")
	<-ctx.Done()
}

// elect shows that one of two nodes leads, and which work the other one leaves out.
func (d *demo) elect(ctx context.Context) {
	d.leader, d.follower = d.Start("A"), d.Start("B")
	d.Await("a leader and a follower", func() bool {
		if len(d.follower.Entries(0, acquired)) > 0 {
			d.leader, d.follower = d.follower, d.leader
		}
		return len(d.leader.Entries(0, acquired)) > 0 && len(d.follower.Entries(0, skipping)) > 0
	})
	d.awaitRuns(d.leader)
	d.show(d.leader, acquired, serviceStarted)
	d.show(d.follower, skipping)
	d.claimSteady(ctx)
	d.Claim(slices.Equal(d.leader.Values(serviceStarted, "service"), schedulers), "%s logs %q, and starts all %d", d.leader.Name, acquired, len(schedulers))
}

// claimSteady claims what holds between faults.
func (d *demo) claimSteady(ctx context.Context) {
	before := dbtest.Ask[int](d, `SELECT count(*) FROM code.runs`)
	d.AwaitTrue("more runs", `SELECT count(*) >= $1 FROM code.runs`, before+2*len(schedulers))
	nodes := dbtest.Ask[string](d, `SELECT string_agg(DISTINCT split_part(node, '-', 1), ', ')
		FROM (SELECT node FROM code.runs ORDER BY id DESC LIMIT $1) r`, len(schedulers))
	d.Claim(nodes == d.leader.Name, "every run of a scheduler is by %s", nodes)
	answers := func(path string, follower int) bool {
		return d.leader.Do(ctx, http.MethodGet, path, nil).Status == 200 && d.follower.Do(ctx, http.MethodGet, path, nil).Status == follower
	}
	d.Claim(answers("/leader", 503), "/leader answers 200 at the leader and 503 at the follower")
	d.Claim(answers("/readyz", 200) && answers("/livez", 200) && answers("/healthz", 200), "/readyz, /livez and /healthz answer 200 at both")
	d.Claim(len(d.follower.Entries(0, built)) == 0, "the follower logs %q, and builds none", skipping)
}

// serveAll shows the work that does not depend on leadership.
func (d *demo) serveAll(ctx context.Context) {
	const repos, queries, work = 40, 20, 100 * time.Millisecond // so that a node that begins late still gets some jobs
	for i := range queries {
		[]*demokit.Process{d.leader, d.follower}[i%2].Do(ctx, http.MethodGet, "/query?q=repo", nil)
	}
	a, b := d.byNode(`SELECT count(*) FROM code.queries WHERE node LIKE $1`)
	d.Claim(a == queries/2 && b == queries/2, "of %d queries, to A and B in turn, A answered %d and B %d", queries, a, b)
	d.Say("%d jobs of %s for whoever claims them", repos, demokit.Pretty(work))
	d.queue("repo-", repos, work)
	d.AwaitTrue("the jobs", `SELECT count(*) >= $1 FROM code.jobs WHERE state = 'done'`, repos)
	a, b = d.byNode(`SELECT count(*) FROM code.jobs WHERE state = 'done' AND node LIKE $1`)
	d.Claim(a > 0 && b > 0 && a+b == repos, "of %d jobs A did %d and B %d, none of them twice", repos, a, b)
	d.AwaitTrue("heartbeats", `SELECT count(DISTINCT split_part(node, '-', 1)) = 2 FROM code.heartbeats WHERE at > now() - interval '1 s'`)
	d.Claim(true, "both beat: the last sign of life of each is less than 1 s old")
}

// killed shows that leadership does not outlive the leader's process.
func (d *demo) killed(ctx context.Context) {
	const large = 3 * time.Second
	d.queue("large-", 2, large)
	d.AwaitTrue("a job at each node", `SELECT count(DISTINCT node) = 2 FROM code.jobs WHERE state = 'running'`)
	d.Say("each node has a job that takes %s", demokit.Pretty(large))
	dead, heir := d.leader, d.follower
	d.Claim(len(heir.Entries(0, skipping)) == 1, "%s has said once that it follows, however often it tried", heir.Name)
	size, at := heir.Size(), time.Now()
	dead.Kill()
	d.Say("kill -9 %d", dead.PID())
	took := heir.Await(size, acquired).Time().Sub(at)
	d.awaitRuns(heir)
	d.Say("%s leads %s after the kill, and all %d schedulers have run there after %s", heir.Name, demokit.Pretty(took), len(schedulers), demokit.Pretty(time.Since(at)))
	d.show(heir, acquired, serviceStarted)
	d.Claim(took > 0 && took < driver.DefaultLeaseDuration/2, "the follower took over at once: no lease of %s had to pass", demokit.Pretty(driver.DefaultLeaseDuration))
	d.claimTerms()
	d.AwaitTrue("the jobs", `SELECT count(*) = 2 FROM code.jobs JOIN code.repos r ON r.id = repo_id
		WHERE r.name LIKE 'large-%' AND state = 'done' AND node LIKE $1`, heir.Name+"-%")
	heir.Await(size, "jobs_requeued")
	d.Claim(true, "the job of %s was queued again when its heartbeat failed to come: %s did both", dead.Name, heir.Name)
	d.leader, d.follower = heir, dead
}

// claimTerms claims what the guard of each run ensures: no run of an old term comes after one of a new term.
func (d *demo) claimTerms() {
	late := dbtest.Ask[int](d, `SELECT count(*) FILTER (WHERE term < last)
		FROM (SELECT term, lag(term) OVER (ORDER BY id) AS last FROM code.runs) r`)
	terms := dbtest.Ask[int](d, `SELECT count(DISTINCT term) FROM code.runs`)
	d.Claim(late == 0, "%d terms so far, and no run of an old one came after a run of a new one", terms)
}

// restarted shows that a restarted node does not disturb the leader.
func (d *demo) restarted(ctx context.Context) {
	size := d.leader.Size()
	d.follower = d.Start(d.follower.Name)
	d.follower.Await(0, skipping)
	d.show(d.follower, skipping)
	d.claimSteady(ctx)
	d.Claim(len(d.leader.Entries(size, "state_change")) == 0, "%s's leadership went on", d.leader.Name)
}

// terminated shows the order of a clean stop, and how long the hand-over takes.
func (d *demo) terminated(ctx context.Context) {
	old, heir := d.leader, d.follower
	size, at := heir.Size(), time.Now()
	d.Say("kill -TERM %d", old.PID())
	old.Terminate()
	ended := time.Since(at)
	leads := heir.Await(size, acquired).Time()
	d.awaitRuns(heir)
	d.show(old, serviceStopped)
	d.show(heir, acquired, serviceStarted)
	stops := old.Values(serviceStopped, "service")
	slices.Reverse(stops)
	d.Claim(slices.Equal(stops, schedulers), "the schedulers stopped in reverse order, and the process ended with exit code 0")
	last := old.Await(0, serviceStopped, "service="+schedulers[0]).Time()
	d.Say("%s leads %s after SIGTERM, %s after the last scheduler of %s had stopped; its process ended after %s",
		heir.Name, demokit.Pretty(leads.Sub(at)), demokit.Pretty(leads.Sub(last)), old.Name, demokit.Pretty(ended))
	d.Claim(leads.After(last), "leadership went when they had stopped, not before")
	d.leader, d.follower = heir, d.Start(old.Name)
	d.claimTerms()
}

// queue creates repositories and a job for each.
func (d *demo) queue(name string, count int, work time.Duration) {
	d.Exec(`WITH r AS (INSERT INTO code.repos (name) SELECT $1 || n FROM generate_series(1, $2) n RETURNING id)
		INSERT INTO code.jobs (repo_id, work) SELECT id, $3 FROM r`, name, count, work)
}

// byNode runs a query that returns a number, once for A and once for B.
func (d *demo) byNode(sql string) (a, b int) {
	return dbtest.Ask[int](d, sql, "A-%"), dbtest.Ask[int](d, sql, "B-%")
}

// awaitRuns waits until all schedulers have run on a node in the newest term.
func (d *demo) awaitRuns(n *demokit.Process) {
	d.Await("the schedulers of "+n.Name, func() bool {
		return dbtest.Ask[int](d, `SELECT count(DISTINCT scheduler) FROM code.runs
			WHERE term = (SELECT max(term) FROM code.runs) AND node LIKE $1`, n.Name+"-%") == len(schedulers) &&
			len(n.Entries(0, serviceStarted)) >= len(schedulers)
	})
}

// show prints entries of a node's log.
func (d *demo) show(n *demokit.Process, messages ...string) {
	for _, message := range messages {
		for _, e := range n.Entries(0, message) {
			d.Draw(demokit.Faint, strings.TrimSuffix(e.Time().Format("15:04:05.000")+"  "+n.Name+"  "+message+" "+e.Text("service"), " <nil>"))
		}
	}
}
