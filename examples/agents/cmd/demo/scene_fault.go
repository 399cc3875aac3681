package main

import (
	"context"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// killed shows that a lock does not outlive its process.
func (d *demo) killed(ctx context.Context) error {
	x, err := d.newAgent(ctx, d.a, "potter")
	if err != nil {
		return err
	}
	hook := d.send(ctx, d.a, "user-prompt-submit", agents.Hook{SessionID: x.session, Prompt: "by A", WorkMS: 60_000})
	if _, err := d.awaitSpan(ctx, x, d.a); err != nil {
		return err
	}
	d.Say("a hook at A works on agent %d for a minute; another one comes to B and waits", x.id)
	next := d.send(ctx, d.b, "user-prompt-submit", agents.Hook{SessionID: x.session, Prompt: "by B"})
	if err := d.awaitWaiter(ctx, x); err != nil {
		return err
	}
	at, err := d.database.Now(ctx)
	if err != nil {
		return err
	}
	if err := d.a.Kill(); err != nil {
		return err
	}
	d.Say("kill -9 %d", d.a.PID())
	<-hook // the process died, and its connection with it
	y := <-next
	s, err := d.awaitSpan(ctx, x, d.b)
	if err != nil {
		return err
	}
	after := s.Began.Sub(at)
	d.Say("B began %s after the kill, and answers %d", demokit.Pretty(after), y.status)
	d.Claim(y.status == http.StatusOK && after > 0 && after < lockTimeout, "B had the lock at once: no timeout had to pass")
	if err := d.claimNothingWritten(ctx, x); err != nil {
		return err
	}
	if d.a, err = startReplica(ctx, "A", d.database.DSN); err != nil {
		return err
	}
	d.introduce(d.a)
	return nil
}

// stopped shows that a stopped process does not keep its lock, and that it detects the
// loss before it does harm.
func (d *demo) stopped(ctx context.Context) error {
	x, err := d.newAgent(ctx, d.a, "baker")
	if err != nil {
		return err
	}
	hook := d.send(ctx, d.a, "user-prompt-submit", agents.Hook{SessionID: x.session, Prompt: "by A", WorkMS: 1000})
	if _, err := d.awaitSpan(ctx, x, d.a); err != nil {
		return err
	}
	at, err := d.database.Now(ctx)
	if err != nil {
		return err
	}
	if err := d.a.Stop(); err != nil {
		return err
	}
	d.Say("a hook at A works on agent %d for 1 s, but: kill -STOP %d", x.id, d.a.PID())
	d.Say("its sessions have %s to give a sign of life; another hook comes to B and waits", demokit.Pretty(sessionTTL))
	y := d.persist(ctx, d.b, "user-prompt-submit", agents.Hook{SessionID: x.session, Prompt: "by B"})
	s, err := d.awaitSpan(ctx, x, d.b)
	if err != nil {
		return err
	}
	after := s.Began.Sub(at)
	d.Say("B began %s after the stop, and answers %d", demokit.Pretty(after), y.status)
	const slack = 2 * time.Second // for a slow machine
	d.Claim(y.status == http.StatusOK && after < sessionTTL+lockTimeout+slack, "the lock was free when the time was over")
	woken := time.Now()
	if err := d.a.Resume(); err != nil {
		return err
	}
	d.Say("kill -CONT %d: its handler goes on where it was", d.a.PID())
	z := <-hook
	d.Say("A answers %d, %s after it woke up", z.status, demokit.Pretty(time.Since(woken)))
	d.problem(z)
	d.Claim(z.status == http.StatusServiceUnavailable, "A found its lock lost")
	if err := d.claimNothingWritten(ctx, x); err != nil {
		return err
	}
	y = d.persist(ctx, d.a, "stop", agents.Hook{SessionID: x.session})
	d.Claim(y.status == http.StatusOK, "A serves again: 200 for its next hook")
	return nil
}

// persist repeats a hook, after the pause that Retry-After asks for, until the answer is not 423.
func (d *demo) persist(ctx context.Context, at *replica, hook string, body agents.Hook) answer {
	for {
		y := d.post(ctx, at, hook, body)
		if y.status != http.StatusLocked {
			return y
		}
		d.Say("%s answers 423 after %s, Retry-After %s", at.Name, demokit.Pretty(y.took), y.retryAfter)
		select {
		case <-ctx.Done():
			return y
		case <-time.After(y.retryAfter):
		}
	}
}

// claimNothingWritten claims that A's hook did not write what it would have written at its end.
func (d *demo) claimNothingWritten(ctx context.Context, x agent) error {
	var byA, byB, ended int
	err := d.db.QueryRow(ctx, `SELECT
		(SELECT count(*) FILTER (WHERE text = 'by A') FROM hooks.turns JOIN hooks.commands c ON c.id = command_id WHERE agent_id = $1),
		(SELECT count(*) FILTER (WHERE text = 'by B') FROM hooks.turns JOIN hooks.commands c ON c.id = command_id WHERE agent_id = $1),
		(SELECT count(ended_at) FROM hooks.spans WHERE agent_id = $1 AND replica = 'A' AND hook = 'user-prompt-submit')`, x.id).Scan(&byA, &byB, &ended)
	if err != nil {
		return err
	}
	d.Claim(byA == 0 && byB == 1 && ended == 0, "B's prompt is in the database, and nothing of A's hook")
	return nil
}
