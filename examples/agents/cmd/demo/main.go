// Command demo shows, on a real PostgreSQL, what an agent's lock does when two
// replicas of examples/agents get hooks for the same agents:
//
//	go run ./examples/agents/cmd/demo         # and stay until Ctrl-C
//	go run ./examples/agents/cmd/demo -once   # exit 1 if a claim fails
//
// It starts PostgreSQL, or creates a database of its own on the server of
// PGLATCH_TEST_DATABASE_URL, and starts itself twice more as the replicas. All of them
// listen on loopback addresses and are gone when it ends.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// Timings of the replicas, shorter than in production so that the demo does not take long.
const (
	lockTimeout    = 6 * time.Second // longer than sessionTTL
	sessionTTL     = 5 * time.Second
	workerInterval = 250 * time.Millisecond
)

// spansTable has what each hook did under its lock, by the server's clock.
const spansTable = `CREATE TABLE spans (
	id       bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	agent_id integer NOT NULL,
	hook     text NOT NULL,
	replica  text NOT NULL,
	began_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	ended_at timestamptz
)`

// serve is the main function of a replica.
func serve(ctx context.Context, n *demokit.Node) error {
	pool, err := pgxpool.New(ctx, n.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	app, err := agents.Open(ctx, agents.Config{
		DSN: n.DSN, Replica: n.Name, LockTimeout: lockTimeout, SessionTTL: sessionTTL, WorkerInterval: workerInterval,
		Logger: slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
		// A hook takes as long as its message says. It records its begin and its end, under the lock.
		Around: func(ctx context.Context, hook string, h *agents.Hook, agent int32, work func() error) error {
			var id int64
			err := pool.QueryRow(ctx, `INSERT INTO spans (agent_id, hook, replica) VALUES ($1, $2, $3) RETURNING id`, agent, hook, n.Name).Scan(&id)
			if err != nil {
				return err
			}
			takes, _ := time.ParseDuration(h.Message) // 0 without one
			demokit.Pause(ctx, takes)
			if err := work(); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			_, err = pool.Exec(ctx, `UPDATE spans SET ended_at = clock_timestamp() WHERE id = $1`, id)
			return err
		},
	})
	if err != nil {
		return err
	}
	defer app.Close()
	listener, err := n.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	return app.Serve(ctx, listener)
}

func main() {
	demokit.Main("pglatch: two replicas, one PostgreSQL, one lock for each agent", serve, func(ctx context.Context, d *demokit.Demo) demokit.Story {
		demokit.Check(d.OpenDatabase())
		d.Exec(spansTable)
		s := &demo{Demo: d, a: d.Start("A"), b: d.Start("B")}
		names := demokit.Must(namespace.NewSet(agents.Agents, agents.Schema))
		m := demokit.Must(monitor.Open(monitor.Config{DSN: d.DSN, Namespaces: names, Record: time.Second}))
		d.Defer(func() error { m.Close(); return nil })
		s.page = d.Serve(m.Page()) + "/"
		return demokit.Story{Stay: s.stay, Scenes: []demokit.Scene{
			{Title: "Hooks for one agent, at both replicas: one after another", Play: s.sameAgent},
			{Title: "Hooks for different agents: in parallel", Play: s.differentAgents},
			{Title: "A background worker skips a busy agent", Play: s.workerSkips},
			{Title: "A wait that takes too long is answered 423, and names the holder", Play: s.waitTimesOut},
			{Title: "kill -9 of a replica that holds a lock: the other has it at once", Play: s.killed},
			{Title: "A replica is stopped (SIGSTOP): its lock is free after the session's time", Play: s.stopped},
			{Title: "Everybody can see the locks", Play: s.lockList},
		}}
	})
}

// A demo is the state that the scenes share.
type demo struct {
	*demokit.Demo
	a, b *demokit.Process // the replicas
	page string           // the monitor's
}

// An agent is one that the demo plays.
type agent struct {
	id      int32
	session string
}

// newAgent starts a session at replica B.
func (d *demo) newAgent(ctx context.Context, session string) agent {
	var reply agents.HookReply
	d.send(ctx, d.b, "session-start", agent{0, session}, 0, "").Decode(&reply)
	return agent{reply.AgentID, session}
}

// send calls a hook that takes some time, and returns the answer.
func (d *demo) send(ctx context.Context, at *demokit.Process, hook string, x agent, takes time.Duration, prompt string) demokit.Answer {
	return demokit.Do(ctx, http.MethodPost, at.URL+"/hook/"+hook, map[string]string{"session_id": x.session, "message": takes.String(), "prompt": prompt})
}

// begin calls a hook at A, and returns when it works. The answer comes through the channel.
func (d *demo) begin(ctx context.Context, hook string, x agent, takes time.Duration) <-chan demokit.Answer {
	c := make(chan demokit.Answer, 1)
	go func() { c <- d.send(ctx, d.a, hook, x, takes, "by A") }()
	d.began(ctx, x, d.a)
	d.Say("a hook at A works on agent %d for %s", x.id, demokit.Pretty(takes))
	return c
}

// A span is a row that a hook wrote when it began and updated when it ended.
type span struct {
	AgentID int32
	Replica string
	Began   time.Time
	Ended   *time.Time // nil = not yet, or never
}

// spans returns the spans of some agents.
func (d *demo) spans(ctx context.Context, of ...agent) []span {
	var ids []int32
	for _, a := range of {
		ids = append(ids, a.id)
	}
	rows, _ := d.Pool.Query(ctx, `SELECT agent_id, replica, began_at, ended_at FROM spans
		WHERE agent_id = ANY($1) AND hook <> 'session-start' ORDER BY began_at`, ids)
	return demokit.Must(pgx.CollectRows(rows, pgx.RowToStructByPos[span]))
}

// began waits until a hook for the agent has begun at a replica, and returns when.
func (d *demo) began(ctx context.Context, of agent, at *demokit.Process) (s span) {
	d.Await(fmt.Sprintf("a hook for %s at %s", of.session, at.Name), func() bool {
		for _, x := range d.spans(ctx, of) {
			if x.Replica == at.Name && s.AgentID == 0 {
				s = x
			}
		}
		return s.AgentID != 0
	})
	return s
}

// burst calls a hook for each agent, all at once, to A and B in turn, draws what they did, and returns how many
// succeeded and how many overlapped.
func (d *demo) burst(ctx context.Context, takes time.Duration, row func(span) string, all ...agent) (ok, most int) {
	d.Say("%d hooks, each with %s of work, to A and B in turn", len(all), demokit.Pretty(takes))
	answers, at := make(chan demokit.Answer, len(all)), time.Now()
	for i, x := range all {
		hook := []string{"pre-tool-use", "post-tool-use", "notification"}[i%3]
		go func() { answers <- d.send(ctx, []*demokit.Process{d.a, d.b}[i%2], hook, x, takes, "") }()
	}
	for range all {
		if y := <-answers; y.Status == http.StatusOK {
			ok++
		}
	}
	d.Say("%d × 200 after %s, for %s of work", ok, demokit.Pretty(time.Since(at)), demokit.Pretty(time.Duration(len(all))*takes))
	var bars []demokit.Span
	spans := d.spans(ctx, all...)
	for _, s := range spans {
		if s.Ended == nil {
			return ok, len(spans)
		}
		bars = append(bars, demokit.Span{Row: row(s), Began: s.Began, Ended: *s.Ended})
		count := 0
		for _, o := range spans {
			if !o.Began.After(s.Began) && (o.Ended == nil || o.Ended.After(s.Began)) {
				count++
			}
		}
		most = max(most, count)
	}
	d.Timeline(bars)
	return ok, most
}

// sameAgent sends hooks for one agent to both replicas, all at once.
func (d *demo) sameAgent(ctx context.Context) {
	x, all := d.newAgent(ctx, "tailor"), []agent{}
	for range 12 {
		all = append(all, x)
	}
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
	checked := func(condition string) bool {
		return dbtest.Ask[bool](d.Database, `SELECT count(*) > 0 FROM hooks.agents a JOIN spans s ON s.agent_id = a.id
			WHERE a.id = $1 AND hook = 'pre-tool-use' AND `+condition, x.id)
	}
	d.Claim(!checked(`context_checked_at BETWEEN began_at AND s.ended_at`), "no worker touched the agent while the hook had it")
	d.Await("the worker's next cycle", func() bool { return checked(`context_checked_at > s.ended_at`) })
	d.Claim(true, "the worker did its work when the agent was free")
}

// agentLocks are the locks of an agent and the requests for them.
const agentLocks = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = $1 AND objid = $2`

// waitTimesOut shows the answer to a client whose wait for the lock times out.
func (d *demo) waitTimesOut(ctx context.Context) {
	x := d.newAgent(ctx, "weaver")
	hook := d.begin(ctx, "pre-tool-use", x, 9*time.Second)
	pid := dbtest.Ask[uint32](d.Database, agentLocks+` AND granted`, agents.Agents.Number(), x.id)
	d.Say("another one comes to B, which waits for %s", demokit.Pretty(lockTimeout))
	y := d.send(ctx, d.b, "stop", x, 0, "")
	p := d.refused(d.b, y)
	d.Claim(y.Status == http.StatusLocked && retryAfter(y) > 0, "423 Locked, and when to come again")
	d.Claim(p.Holder != nil && p.Holder.ApplicationName == "agents/A" && p.Holder.PID == pid, "the answer names the holder: agents/A in session %d", pid)
	d.Claim((<-hook).Status == http.StatusOK, "the first hook is done, undisturbed")
	y = d.send(ctx, d.b, "stop", x, 0, "")
	d.Claim(y.Status == http.StatusOK, "when A is done, B gets the lock: 200 after %s", demokit.Pretty(y.Took))
}

// refused prints a refusal.
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
	d.Await("the next hook to wait for the lock", func() bool {
		return dbtest.Ask[bool](d.Database, `SELECT EXISTS (`+agentLocks+` AND NOT granted)`, agents.Agents.Number(), x.id)
	})
	at := d.Now()
	d.Say("another one waits at B;  kill -9 %d", d.a.PID())
	d.a.Kill()
	<-hook // the process died, and its connection with it
	d.tookOver(ctx, x, <-next, at, lockTimeout)
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
	d.tookOver(ctx, x, y, at, sessionTTL+lockTimeout+slack)
	d.Say("kill -CONT %d: its handler goes on where it was", d.a.PID())
	d.a.Signal(syscall.SIGCONT)
	y = <-hook
	d.refused(d.a, y)
	d.Claim(y.Status == http.StatusServiceUnavailable, "A found its lock lost")
	d.claimNothingWritten(x)
	d.Claim(d.persist(ctx, d.a, "stop", x).Status == http.StatusOK, "A serves again: 200 for its next hook")
}

// tookOver claims that B had the lock soon after a fault of A.
func (d *demo) tookOver(ctx context.Context, x agent, y demokit.Answer, fault time.Time, bound time.Duration) {
	after := d.began(ctx, x, d.b).Began.Sub(fault)
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
	said := dbtest.Ask[string](d.Database, `SELECT coalesce(string_agg(text, ', '), '') FROM hooks.turns JOIN hooks.commands c ON c.id = command_id WHERE agent_id = $1`, x.id)
	ended := dbtest.Ask[int](d.Database, `SELECT count(ended_at) FROM spans WHERE agent_id = $1 AND replica = 'A' AND hook = 'user-prompt-submit'`, x.id)
	d.Claim(said == "by B" && ended == 0, "B's prompt is in the database, and nothing of A's hook")
}

// lockList shows the list of locks that an operator sees, and the page.
func (d *demo) lockList(ctx context.Context) {
	x := d.newAgent(ctx, "miller")
	working, enough := context.WithCancel(ctx)
	defer enough()
	hook, key := d.begin(working, "pre-tool-use", x, time.Minute), fmt.Sprintf("agent/%d", x.id)
	url := d.b.URL + monitor.Path
	d.Say("GET %s", d.Paint(demokit.Cyan, url))
	var list monitor.Snapshot
	demokit.Do(ctx, http.MethodGet, url+"?q="+key, nil).Decode(&list)
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
	clients := make(chan bool)
	for i, session := range []string{"tailor", "smith", "weaver", "tailor"} {
		go func() {
			defer func() { clients <- true }()
			for ctx.Err() == nil {
				y := d.send(ctx, []*demokit.Process{d.a, d.b}[i%2], "pre-tool-use", agent{0, session}, time.Duration(i+1)*400*time.Millisecond, "")
				demokit.Pause(ctx, max(retryAfter(y), 200*time.Millisecond))
			}
		}()
	}
	for range 4 {
		<-clients
	}
}
