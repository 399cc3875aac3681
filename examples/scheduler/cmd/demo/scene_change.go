package main

import (
	"context"
	"slices"
	"time"

	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// lease is how long a disconnected leader would keep others out.
const lease = 15 * time.Second

// large is the duration of the jobs that are there when their node is killed.
const large = 3 * time.Second

// killed shows that leadership does not outlive the leader's process.
func (d *demo) killed(ctx context.Context) error {
	if err := d.queue(ctx, "large-", 2, large); err != nil {
		return err
	}
	err := demokit.Await(ctx, "a job at each node", func() (bool, error) {
		return one[bool](ctx, d, `SELECT count(DISTINCT node) = 2 FROM code.jobs WHERE state = 'running'`)
	})
	if err != nil {
		return err
	}
	d.Say("each node has a job that takes %s", demokit.Pretty(large))
	dead, heir := d.leader, d.follower
	size := heir.Log.Size()
	at := time.Now()
	if err := dead.Kill(); err != nil {
		return err
	}
	d.Say("kill -9 %d", dead.PID())
	e, err := d.awaitLog(ctx, heir, size, acquired)
	if err != nil {
		return err
	}
	took := e.Time.Sub(at)
	if err := d.awaitRuns(ctx, heir, len(schedulers)); err != nil {
		return err
	}
	d.Say("%s leads %s after the kill, and all %d schedulers have run there after %s",
		d.Paint(demokit.Cyan, heir.Name), precise(took), len(schedulers), precise(time.Since(at)))
	d.show(heir, acquired, serviceStarted)
	d.Claim(took > 0 && took < lease/2, "the follower took over at once: no lease of %s had to pass", demokit.Pretty(lease))
	if err := d.claimTerms(ctx); err != nil {
		return err
	}
	d.leader, d.follower = heir, nil
	done := 0
	err = demokit.Await(ctx, "the jobs", func() (_ bool, err error) {
		done, err = one[int](ctx, d, `SELECT count(*) FROM code.jobs JOIN code.repos r ON r.id = repo_id
			WHERE r.name LIKE 'large-%' AND state = 'done' AND node LIKE $1`, heir.Name+"-%")
		return done == 2, err
	})
	if err != nil {
		return err
	}
	if _, err := d.awaitLog(ctx, heir, size, requeued); err != nil {
		return err
	}
	d.Claim(true, "the job of %s was queued again when its heartbeat failed to come: %s did both", dead.Name, heir.Name)
	return nil
}

// claimTerms claims what the guard of each run ensures: no run of an old term comes after one of a new term.
func (d *demo) claimTerms(ctx context.Context) error {
	var terms, back int
	err := d.database.Pool.QueryRow(ctx, `SELECT count(DISTINCT term), count(*) FILTER (WHERE term < last)
		FROM (SELECT term, lag(term) OVER (ORDER BY id) AS last FROM code.runs) r`).Scan(&terms, &back)
	if err != nil {
		return err
	}
	d.Claim(back == 0, "%d terms so far, and no run of an old one came after a run of a new one", terms)
	return nil
}

// restarted shows that a restarted node does not disturb the leader.
func (d *demo) restarted(ctx context.Context) (err error) {
	size := d.leader.Log.Size()
	if d.follower, err = d.start(ctx, "A"); err != nil {
		return err
	}
	if _, err := d.awaitLog(ctx, d.follower, 0, skipping); err != nil {
		return err
	}
	d.show(d.follower, skipping)
	if err := d.claimSteady(ctx); err != nil {
		return err
	}
	changes := d.leader.Log.Entries(size, demokit.Message("state_change"))
	d.Claim(d.count(d.follower, built) == 0 && len(changes) == 0, "A follows and builds nothing, and B's leadership went on")
	return nil
}

// terminated shows the order of a clean stop, and how long the hand-over takes.
func (d *demo) terminated(ctx context.Context) error {
	old, heir := d.leader, d.follower
	size := heir.Log.Size()
	at := time.Now()
	d.Say("kill -TERM %d", old.PID())
	if err := old.Terminate(); err != nil {
		return err
	}
	ended := time.Since(at)
	e, err := d.awaitLog(ctx, heir, size, acquired)
	if err != nil {
		return err
	}
	if err := d.awaitRuns(ctx, heir, len(schedulers)); err != nil {
		return err
	}
	d.show(old, serviceStopped)
	d.show(heir, acquired, serviceStarted)
	stops := old.Log.Entries(0, demokit.Message(serviceStopped))
	if len(stops) == 0 {
		d.Claim(false, "the schedulers stopped")
		return nil
	}
	last := stops[len(stops)-1]
	d.Say("%s leads %s after SIGTERM, %s after the last scheduler of %s had stopped; its process ended after %s",
		d.Paint(demokit.Cyan, heir.Name), precise(e.Time.Sub(at)), precise(e.Time.Sub(last.Time)), old.Name, precise(ended))
	reverse := slices.Clone(schedulers)
	slices.Reverse(reverse)
	d.Claim(slices.Equal(d.services(old, serviceStopped), reverse), "the schedulers stopped in reverse order")
	d.Claim(e.Time.After(last.Time), "leadership went when they had stopped, not before")
	d.Claim(true, "the process ended in good order, with exit code 0")
	d.leader, d.follower = heir, nil
	if d.follower, err = d.start(ctx, old.Name); err != nil {
		return err
	}
	return d.claimTerms(ctx)
}

// precise formats a short duration to a tenth of a millisecond.
func precise(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
