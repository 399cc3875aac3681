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
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/internal/test/dbtest"
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
		DSN: n.DSN, Replica: n.Name, LockTimeout: lockTimeout, SessionTTL: sessionTTL, WorkerInterval: workerInterval, Logger: n.Log,
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
	return n.Run(ctx, app, err)
}

func main() {
	demokit.Main("pglatch: two replicas, one PostgreSQL, one lock for each agent", "", serve, func(ctx context.Context, d *demokit.Demo) demokit.Story {
		demokit.Check(d.OpenDatabase())
		d.Exec(spansTable)
		s := &demo{Demo: d, a: d.Start("A"), b: d.Start("B")}
		names := demokit.Must(namespace.NewSet(agents.Agents, agents.Schema))
		m := demokit.Must(monitor.Open(monitor.Config{DSN: d.DSN, Namespaces: names, Record: time.Second}))
		d.Cleanup(m.Close)
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
	a, b  *demokit.Process // the replicas
	page  string           // the monitor's
	waits int              // that timed out
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
	return at.Do(ctx, http.MethodPost, "/hook/"+hook, map[string]string{"session_id": x.session, "message": takes.String(), "prompt": prompt})
}

// begin calls a hook at A, and returns when it works. The answer comes through the channel.
func (d *demo) begin(ctx context.Context, hook string, x agent, takes time.Duration) <-chan demokit.Answer {
	c := make(chan demokit.Answer, 1)
	go func() { c <- d.send(ctx, d.a, hook, x, takes, "by A") }()
	d.began(x, d.a)
	d.Say("a hook at A works on agent %d for %s", x.id, demokit.Pretty(takes))
	return c
}

// began waits until a hook for the agent has begun at a replica, and returns when.
func (d *demo) began(x agent, at *demokit.Process) time.Time {
	const began = ` FROM spans WHERE agent_id = $1 AND replica = $2 AND hook <> 'session-start'`
	d.AwaitTrue("a hook for "+x.session+" at "+at.Name, `SELECT count(*) > 0`+began, x.id, at.Name)
	return dbtest.Ask[time.Time](d, `SELECT min(began_at)`+began, x.id, at.Name)
}

// A span is a row that a hook wrote when it began and updated when it ended.
type span struct {
	AgentID      int32
	Replica      string
	Began, Ended time.Time
	AtOnce       int // hooks that were at work when this one began, with this one
}

// burst calls a hook for each agent, all at once, to A and B in turn, draws what they did, and returns how many
// succeeded and how many overlapped.
func (d *demo) burst(ctx context.Context, takes time.Duration, row func(span) string, all ...agent) (ok, most int) {
	d.Say("%d hooks, each with %s of work, to A and B in turn", len(all), demokit.Pretty(takes))
	answers, at, ids := make(chan demokit.Answer, len(all)), time.Now(), []int32{}
	for i, x := range all {
		hook := []string{"pre-tool-use", "post-tool-use", "notification"}[i%3]
		go func() { answers <- d.send(ctx, []*demokit.Process{d.a, d.b}[i%2], hook, x, takes, "") }()
		ids = append(ids, x.id)
	}
	for range all {
		if y := <-answers; y.Status == http.StatusOK {
			ok++
		}
	}
	d.Say("%d × 200 after %s, for %s of work", ok, demokit.Pretty(time.Since(at)), demokit.Pretty(time.Duration(len(all))*takes))
	rows, _ := d.Pool.Query(ctx, `WITH s AS (SELECT agent_id, replica, began_at, coalesce(ended_at, clock_timestamp()) AS ended_at
			FROM spans WHERE agent_id = ANY($1) AND hook <> 'session-start')
		SELECT s.*, (SELECT count(*) FROM s o WHERE s.began_at >= o.began_at AND s.began_at < o.ended_at) FROM s`, ids)
	var bars []demokit.Span
	for _, s := range demokit.Must(pgx.CollectRows(rows, pgx.RowToStructByPos[span])) {
		bars, most = append(bars, demokit.Span{Row: row(s), Began: s.Began, Ended: s.Ended}), max(most, s.AtOnce)
	}
	d.Timeline(bars)
	return ok, most
}
