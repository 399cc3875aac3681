package main

import (
	"context"
	"net/http"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// workerSkips shows that a worker neither waits for a hook nor disturbs it.
func (d *demo) workerSkips(ctx context.Context) error {
	x, err := d.newAgent(ctx, d.a, "smith")
	if err != nil {
		return err
	}
	hook := d.send(ctx, d.a, "pre-tool-use", agents.Hook{SessionID: x.session, WorkMS: 4000})
	if _, err := d.awaitSpan(ctx, x, d.a); err != nil {
		return err
	}
	from := d.b.Log.Size()
	d.Say("a hook at A works on agent %d for 4 s; B's workers look at every agent each %s", x.id, demokit.Pretty(workerInterval))
	wait, cancel := context.WithTimeout(ctx, demokit.Patience)
	defer cancel()
	_, err = d.b.Log.Await(wait, from, func(e demokit.Entry) bool {
		return e.Message == "busy_agent_skipped" && e.Worker == "context_poller" && e.AgentID == x.id
	})
	if err != nil {
		return err
	}
	d.Say("B's log: busy_agent_skipped, worker context_poller, agent %d", x.id)
	y := <-hook
	d.Claim(y.status == http.StatusOK, "the hook is done: %d", y.status)
	s, err := d.awaitSpan(ctx, x, d.a) // including its end
	if err != nil {
		return err
	}
	inside, err := d.checked(ctx, x, `context_checked_at BETWEEN $2 AND $3`, s)
	if err != nil {
		return err
	}
	d.Claim(!inside, "no worker touched the agent while the hook had it")
	err = demokit.Await(ctx, "the worker's next cycle", func() (bool, error) {
		return d.checked(ctx, x, `context_checked_at > $3 AND $2::timestamptz IS NOT NULL`, s)
	})
	if err != nil {
		return err
	}
	d.Say("the hook has ended, and a next cycle found agent %d free", x.id)
	d.Claim(true, "the worker did its work when the agent was free")
	return nil
}

// checked evaluates a condition on the time at which a worker last looked at an agent.
func (d *demo) checked(ctx context.Context, x agent, condition string, s span) (is bool, err error) {
	err = d.db.QueryRow(ctx, `SELECT coalesce(`+condition+`, false) FROM hooks.agents WHERE id = $1`, x.id, s.Began, s.Ended).Scan(&is)
	return is, err
}

// waitTimesOut shows the answer to a client whose wait for the lock times out.
func (d *demo) waitTimesOut(ctx context.Context) error {
	x, err := d.newAgent(ctx, d.a, "weaver")
	if err != nil {
		return err
	}
	hook := d.send(ctx, d.a, "pre-tool-use", agents.Hook{SessionID: x.session, WorkMS: 9000})
	if _, err := d.awaitSpan(ctx, x, d.a); err != nil {
		return err
	}
	pid, err := d.holder(ctx, x)
	if err != nil {
		return err
	}
	d.Say("a hook at A works on agent %d for 9 s; it holds the lock in server session %d", x.id, pid)
	d.Say("another one comes to B, which waits for %s", demokit.Pretty(lockTimeout))
	y := d.post(ctx, d.b, "stop", agents.Hook{SessionID: x.session})
	d.Say("B answers %d after %s", y.status, demokit.Pretty(y.took))
	d.problem(y)
	d.Claim(y.status == http.StatusLocked && y.retryAfter > 0, "423 Locked, and when to come again")
	holder := y.problem().Holder
	d.Claim(holder != nil && holder.ApplicationName == "agents/A" && holder.PID == pid, "the answer names the holder: agents/A in session %d", pid)
	y = <-hook
	d.Claim(y.status == http.StatusOK, "the first hook is done, undisturbed: %d", y.status)
	y = d.post(ctx, d.b, "stop", agents.Hook{SessionID: x.session})
	d.Claim(y.status == http.StatusOK, "when A is done, B gets the lock: 200 after %s", demokit.Pretty(y.took))
	return nil
}

// holder returns the pid of the server session that holds the agent's lock.
func (d *demo) holder(ctx context.Context, x agent) (pid uint32, err error) {
	err = d.db.QueryRow(ctx, agentLocks+` AND granted`, agents.Agents.Number(), x.id).Scan(&pid)
	return pid, err
}

// awaitWaiter returns when a session waits in PostgreSQL for the agent's lock.
func (d *demo) awaitWaiter(ctx context.Context, x agent) error {
	return demokit.Await(ctx, "somebody to wait for the lock", func() (waits bool, err error) {
		err = d.db.QueryRow(ctx, `SELECT EXISTS (`+agentLocks+` AND NOT granted)`, agents.Agents.Number(), x.id).Scan(&waits)
		return waits, err
	})
}

const agentLocks = `SELECT pid FROM pg_locks
	WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	AND classid = $1 AND objid = $2 AND objsubid = 2`
