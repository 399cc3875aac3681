package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// elect shows that one of two nodes leads, and which work the other one leaves out.
func (d *demo) elect(ctx context.Context) (err error) {
	if d.leader, err = d.start(ctx, "A"); err != nil {
		return err
	}
	if _, err := d.awaitLog(ctx, d.leader, 0, acquired); err != nil {
		return err
	}
	if d.follower, err = d.start(ctx, "B"); err != nil {
		return err
	}
	if _, err := d.awaitLog(ctx, d.follower, 0, skipping); err != nil {
		return err
	}
	if err := d.awaitRuns(ctx, d.leader, len(schedulers)); err != nil {
		return err
	}
	err = demokit.Await(ctx, "the log of "+d.leader.Name, func() (bool, error) { return d.count(d.leader, serviceStarted) >= len(schedulers), nil })
	if err != nil {
		return err
	}
	d.show(d.leader, acquired, serviceStarted)
	d.show(d.follower, skipping)
	d.Claim(slices.Equal(d.services(d.leader, serviceStarted), schedulers), "A logs %q, and starts all %d", acquired, len(schedulers))
	d.Claim(d.count(d.follower, skipping) == 1 && d.count(d.follower, built) == 0, "B logs %q, and builds none", skipping)
	return d.claimSteady(ctx)
}

// claimSteady claims what holds between faults.
func (d *demo) claimSteady(ctx context.Context) error {
	before, err := one[int](ctx, d, `SELECT count(*) FROM code.runs`)
	if err != nil {
		return err
	}
	err = demokit.Await(ctx, "more runs", func() (bool, error) {
		now, err := one[int](ctx, d, `SELECT count(*) FROM code.runs`)
		return now >= before+2*len(schedulers), err
	})
	if err != nil {
		return err
	}
	nodes, err := one[string](ctx, d, `SELECT string_agg(DISTINCT split_part(node, '-', 1), ', ')
		FROM (SELECT node FROM code.runs ORDER BY id DESC LIMIT $1) r`, len(schedulers))
	if err != nil {
		return err
	}
	d.Claim(nodes == d.leader.Name, "every run of a scheduler is by %s", nodes)
	answers := map[string][2]int{}
	for _, path := range []string{"/leader", "/readyz", "/livez", "/healthz"} {
		a, err := d.status(ctx, d.leader, path)
		if err != nil {
			return err
		}
		b, err := d.status(ctx, d.follower, path)
		if err != nil {
			return err
		}
		answers[path] = [2]int{a, b}
	}
	const ok, not = http.StatusOK, http.StatusServiceUnavailable
	d.Claim(answers["/leader"] == [2]int{ok, not}, "/leader answers %d at %s and %d at %s", answers["/leader"][0], d.leader.Name, answers["/leader"][1], d.follower.Name)
	healthy := [2]int{ok, ok}
	d.Claim(answers["/readyz"] == healthy && answers["/livez"] == healthy && answers["/healthz"] == healthy, "/readyz, /livez and /healthz answer 200 at both")
	return nil
}

// serveAll shows the work that does not depend on leadership.
func (d *demo) serveAll(ctx context.Context) error {
	const repos, queries = 40, 20
	const work = 100 * time.Millisecond // so that a node that begins late still gets some of them
	d.Say("%d queries to A and B in turn", queries)
	for i := range queries {
		code, err := d.status(ctx, []*node{d.leader, d.follower}[i%2], "/query?q=repo")
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("query: %d %w", code, err)
		}
	}
	served, err := d.byNode(ctx, `SELECT count(*) FROM code.queries WHERE node LIKE $1`)
	if err != nil {
		return err
	}
	d.Claim(served == [2]int{queries / 2, queries / 2}, "A answered %d queries, B %d", served[0], served[1])

	d.Say("%d jobs of %s for whoever claims them", repos, demokit.Pretty(work))
	if err := d.queue(ctx, "repo-", repos, work); err != nil {
		return err
	}
	err = demokit.Await(ctx, "the jobs", func() (bool, error) {
		done, err := one[int](ctx, d, `SELECT count(*) FROM code.jobs WHERE state = 'done'`)
		return done >= repos, err
	})
	if err != nil {
		return err
	}
	done, err := d.byNode(ctx, `SELECT count(*) FROM code.jobs WHERE state = 'done' AND node LIKE $1`)
	if err != nil {
		return err
	}
	d.Say("they are done")
	d.Claim(done[0] > 0 && done[1] > 0 && done[0]+done[1] == repos, "of %d jobs A did %d and B %d, none of them twice", repos, done[0], done[1])
	var beats [2]int
	err = demokit.Await(ctx, "heartbeats", func() (is bool, err error) {
		beats, err = d.byNode(ctx, `SELECT count(*) FROM code.heartbeats WHERE at > now() - interval '1 s' AND node LIKE $1`)
		return beats == [2]int{1, 1}, err
	})
	if err != nil {
		return err
	}
	d.Claim(true, "both beat: the last sign of life of each is less than 1 s old")
	return nil
}

// queue creates repositories and a job for each.
func (d *demo) queue(ctx context.Context, name string, count int, work time.Duration) error {
	_, err := d.database.Pool.Exec(ctx, `WITH r AS (INSERT INTO code.repos (name) SELECT $1 || n FROM generate_series(1, $2) n RETURNING id)
		INSERT INTO code.jobs (repo_id, work) SELECT id, $3 FROM r`, name, count, work)
	return err
}

// byNode runs a query that returns a number, once for A and once for B.
func (d *demo) byNode(ctx context.Context, sql string) (n [2]int, err error) {
	for i, name := range []string{"A-%", "B-%"} {
		if n[i], err = one[int](ctx, d, sql, name); err != nil {
			return n, err
		}
	}
	return n, nil
}

// awaitRuns waits until this many schedulers have run on a node.
func (d *demo) awaitRuns(ctx context.Context, n *node, schedulers int) error {
	return demokit.Await(ctx, "the schedulers of "+n.Name, func() (bool, error) {
		ran, err := one[int](ctx, d, `SELECT count(DISTINCT scheduler) FROM code.runs WHERE term = (SELECT max(term) FROM code.runs) AND node LIKE $1`, n.Name+"-%")
		return ran >= schedulers, err
	})
}

// count returns how often a node logged a message.
func (d *demo) count(n *node, text string) int { return len(n.Log.Entries(0, demokit.Message(text))) }

// services returns the services for which a node logged a message, in order.
func (d *demo) services(n *node, text string) (names []string) {
	for _, e := range n.Log.Entries(0, demokit.Message(text)) {
		names = append(names, e.Service)
	}
	return names
}

// show prints lines of a node's log.
func (d *demo) show(n *node, texts ...string) {
	for _, e := range n.Log.Entries(0, func(e demokit.Entry) bool { return slices.Contains(texts, e.Message) }) {
		line := fmt.Sprintf("%s  %s  %s %s", e.Time.Format("15:04:05.000"), n.Name, e.Message, e.Service)
		d.Draw(d.Paint(demokit.Faint, strings.TrimSpace(line)))
	}
}
