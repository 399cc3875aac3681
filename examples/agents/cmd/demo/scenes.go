package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/monitor"
)

// sameAgent sends hooks for one agent to both replicas, all at once.
func (d *demo) sameAgent(ctx context.Context) {
	all := slices.Repeat([]agent{d.newAgent(ctx, "tailor")}, 12)
	ok, most := d.burst(ctx, 40*time.Millisecond, func(s span) string { return s.Replica }, all...)
	d.Claim(ok == len(all), "every hook was done")
	d.Claim(most == 1, "no two overlap, by the begin and end that each wrote to the database")
}

// differentAgents sends hooks for several agents, all at once.
func (d *demo) differentAgents(ctx context.Context) {
	var all []agent
	for i := range 6 {
		all = append(all, d.newAgent(ctx, fmt.Sprintf("cobbler-%d", i+1)))
	}
	ok, most := d.burst(ctx, 400*time.Millisecond, func(s span) string { return fmt.Sprintf("agent %d at %s", s.AgentID, s.Replica) }, all...)
	d.Claim(ok == len(all) && most > 1, "up to %d went on at the same time", most)
}

// workerSkips shows that a worker neither waits for a hook nor disturbs it.
func (d *demo) workerSkips(ctx context.Context) {
	x, from := d.newAgent(ctx, "smith"), d.b.Size()
	hook := d.begin(ctx, "pre-tool-use", x, 4*time.Second)
	d.Say("B's workers look at every agent each %s", demokit.Pretty(workerInterval))
	d.b.Await(from, "busy_agent_skipped", "worker=context_poller", fmt.Sprintf("agent_id=%d", x.id))
	d.Say("B's log: busy_agent_skipped, worker context_poller, agent %d", x.id)
	d.Claim((<-hook).Status == http.StatusOK, "the hook is done")
	const checked = `SELECT count(*) > 0 FROM hooks.agents a JOIN spans s ON s.agent_id = a.id
		WHERE a.id = $1 AND hook = 'pre-tool-use' AND context_checked_at `
	d.Claim(!dbtest.Ask[bool](d, checked+`BETWEEN began_at AND s.ended_at`, x.id), "no worker touched the agent while the hook had it")
	d.AwaitTrue("the worker's next cycle", checked+`> s.ended_at`, x.id)
	d.Claim(true, "the worker did its work when the agent was free")
}

// agentLocks are the locks of an agent and the requests for them.
const agentLocks = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = $1 AND objid = $2`

// waitTimesOut shows the answer to a client whose wait for the lock times out. If PostgreSQL was too slow to say who
// holds the lock, it shows that again.
func (d *demo) waitTimesOut(ctx context.Context) {
	x := d.newAgent(ctx, fmt.Sprintf("weaver-%d", d.waits))
	hook := d.begin(ctx, "pre-tool-use", x, 9*time.Second)
	pid := dbtest.Ask[uint32](d, agentLocks+` AND granted`, agents.Agents.Number(), x.id)
	d.Say("another one comes to B, which waits for %s", demokit.Pretty(lockTimeout))
	y := d.send(ctx, d.b, "stop", x, 0, "")
	p, done := d.refused(d.b, y), <-hook
	if d.waits++; y.Status == http.StatusLocked && p.Holder == nil && d.waits < 12 {
		d.waitTimesOut(ctx)
		return
	}
	d.Claim(y.Status == http.StatusLocked && retryAfter(y) > 0, "423 Locked, and when to come again")
	d.Claim(p.Holder != nil && p.Holder.ApplicationName == "agents/A" && p.Holder.PID == pid, "the answer names the holder: agents/A in session %d", pid)
	d.Claim(done.Status == http.StatusOK, "the first hook is done, undisturbed")
	y = d.send(ctx, d.b, "stop", x, 0, "")
	d.Claim(y.Status == http.StatusOK, "when A is done, B gets the lock: 200 after %s", demokit.Pretty(y.Took))
}

func (d *demo) refused(by *demokit.Process, y demokit.Answer) (p middleware.ProblemError) {
	d.Say("%s answers %d after %s", by.Name, y.Status, demokit.Pretty(y.Took))
	y.Decode(&p)
	d.Draw(demokit.Faint, fmt.Sprintf("%s: %s", p.Title, p.Detail))
	return p
}

func retryAfter(y demokit.Answer) time.Duration {
	seconds, _ := strconv.Atoi(y.Header.Get("Retry-After")) // 0 without the header
	return time.Duration(seconds) * time.Second
}

// killed shows that a lock does not outlive its process.
func (d *demo) killed(ctx context.Context) {
	x := d.newAgent(ctx, "potter")
	hook := d.begin(ctx, "user-prompt-submit", x, time.Minute)
	next := make(chan demokit.Answer, 1)
	go func() { next <- d.send(ctx, d.b, "user-prompt-submit", x, 0, "by B") }()
	d.AwaitTrue("the next hook to wait for the lock", `SELECT EXISTS (`+agentLocks+` AND NOT granted)`, agents.Agents.Number(), x.id)
	at := d.Now()
	d.Say("another one waits at B;  kill -9 %d", d.a.PID())
	d.a.Kill()
	<-hook // the process died, and its connection with it
	d.tookOver(x, <-next, at, lockTimeout)
	d.a = d.Start("A")
}

// stopped shows that a stopped process does not keep its lock, and that it detects the loss before it does harm.
func (d *demo) stopped(ctx context.Context) {
	x := d.newAgent(ctx, "baker")
	hook := d.begin(ctx, "user-prompt-submit", x, time.Second)
	at := d.Now()
	d.Say("kill -STOP %d: its sessions have %s to give a sign of life; another hook comes to B and waits", d.a.PID(), demokit.Pretty(sessionTTL))
	d.a.Signal(syscall.SIGSTOP)
	y := d.persist(ctx, d.b, "user-prompt-submit", x)
	const slack = 2 * time.Second // for a slow machine
	d.tookOver(x, y, at, sessionTTL+lockTimeout+slack)
	d.Say("kill -CONT %d: its handler goes on where it was", d.a.PID())
	d.a.Signal(syscall.SIGCONT)
	y = <-hook
	d.refused(d.a, y)
	d.Claim(y.Status == http.StatusServiceUnavailable, "A found its lock lost")
	d.claimNothingWritten(x)
	d.Claim(d.persist(ctx, d.a, "stop", x).Status == http.StatusOK, "A serves again: 200 for its next hook")
}

// tookOver claims that B had the lock soon after a fault of A.
func (d *demo) tookOver(x agent, y demokit.Answer, fault time.Time, bound time.Duration) {
	after := d.began(x, d.b).Sub(fault)
	d.Claim(y.Status == http.StatusOK && after > 0 && after < bound, "B began %s after that, and answers %d", demokit.Pretty(after), y.Status)
	d.claimNothingWritten(x)
}

// persist repeats a hook, after the pause that Retry-After asks for, until the answer is not 423.
func (d *demo) persist(ctx context.Context, at *demokit.Process, hook string, x agent) demokit.Answer {
	for {
		y := d.send(ctx, at, hook, x, 0, "by B")
		if y.Status != http.StatusLocked || ctx.Err() != nil {
			return y
		}
		d.Say("%s answers 423 after %s, Retry-After %s", at.Name, demokit.Pretty(y.Took), retryAfter(y))
		demokit.Pause(ctx, retryAfter(y))
	}
}

// claimNothingWritten claims that A's hook did not write what it would have written at its end.
func (d *demo) claimNothingWritten(x agent) {
	said := dbtest.Ask[string](d, `SELECT coalesce(string_agg(text, ', '), '') FROM hooks.turns JOIN hooks.commands c ON c.id = command_id WHERE agent_id = $1`, x.id)
	ended := dbtest.Ask[int](d, `SELECT count(ended_at) FROM spans WHERE agent_id = $1 AND replica = 'A' AND hook = 'user-prompt-submit'`, x.id)
	d.Claim(said == "by B" && ended == 0, "B's prompt is in the database, and nothing of A's hook")
}

// lockList shows the list of locks that an operator sees, and the page.
func (d *demo) lockList(ctx context.Context) {
	x := d.newAgent(ctx, "miller")
	working, enough := context.WithCancel(ctx)
	defer enough()
	hook, key := d.begin(working, "pre-tool-use", x, time.Minute), fmt.Sprintf("agent/%d", x.id)
	d.Say("GET %s", d.Paint(demokit.Cyan, d.b.URL+monitor.Path))
	var list monitor.Snapshot
	d.b.Do(ctx, http.MethodGet, monitor.Path+"?q="+key, nil).Decode(&list)
	seen := false
	for _, l := range list.Locks {
		d.Draw(demokit.Faint, fmt.Sprintf("%s  pid %d  %s  %s  granted %t  for %.3f s", l.Key.Text, l.PID, l.ApplicationName, l.Mode, l.Granted, l.Duration))
		seen = seen || l.Granted && l.ApplicationName == "agents/A" && l.Key.Text == key && l.HeldSince != nil
	}
	d.Claim(seen, "the list has the lock, its holder, and since when")
	d.Say("and the page for whoever is on call: %s", d.Paint(demokit.Cyan, d.page))
	d.Await(key+" on the page", func() bool {
		y := demokit.Do(ctx, http.MethodGet, d.page, nil)
		return strings.Contains(y.Body, key) && strings.Contains(y.Body, "agents/A")
	})
	d.Claim(true, "it has %s and agents/A", key)
	enough()
	<-hook // it ended early
}

// stay keeps the replicas busy until ctx ends, so that there is something to see.
func (d *demo) stay(ctx context.Context) {
	d.Say("the holders, waiters and history of all locks, while hooks go on; Ctrl-C ends it:")
	d.Draw(demokit.Cyan, d.page, d.a.URL+monitor.Path, d.b.URL+monitor.Path)
	var clients sync.WaitGroup
	for i, session := range []string{"tailor", "smith", "weaver", "tailor"} {
		clients.Go(func() {
			for ctx.Err() == nil {
				y := d.send(ctx, []*demokit.Process{d.a, d.b}[i%2], "pre-tool-use", agent{0, session}, time.Duration(i+1)*400*time.Millisecond, "")
				demokit.Pause(ctx, max(retryAfter(y), 200*time.Millisecond))
			}
		})
	}
	clients.Wait()
}
