package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// sameAgent sends hooks for one agent to both replicas, all at once.
func (d *demo) sameAgent(ctx context.Context) error {
	const hooks, work = 12, 40 * time.Millisecond
	x, err := d.newAgent(ctx, d.a, "tailor")
	if err != nil {
		return err
	}
	all := make([]agent, hooks)
	for i := range all {
		all[i] = x
	}
	d.Say("%d hooks for agent %d at once, each with %s of work, to A and B in turn", hooks, x.id, demokit.Pretty(work))
	ok := d.burst(ctx, all, work)
	spans, err := d.spans(ctx, x)
	if err != nil {
		return err
	}
	d.chart(spans, func(s span) string { return s.Replica })
	d.Claim(ok == hooks && len(spans) == hooks, "every hook was done")
	d.Claim(atOnce(spans) == 1, "no two overlap, by the begin and end that each wrote to the database")
	return nil
}

// differentAgents sends hooks for several agents, all at once.
func (d *demo) differentAgents(ctx context.Context) error {
	const hooks, work = 6, 400 * time.Millisecond
	var all []agent
	for i := range hooks {
		x, err := d.newAgent(ctx, d.a, fmt.Sprintf("cobbler-%d", i+1))
		if err != nil {
			return err
		}
		all = append(all, x)
	}
	d.Say("%d hooks for %d agents at once, each with %s of work, to A and B in turn", hooks, hooks, demokit.Pretty(work))
	ok := d.burst(ctx, all, work)
	spans, err := d.spans(ctx, all...)
	if err != nil {
		return err
	}
	d.chart(spans, func(s span) string { return fmt.Sprintf("agent %d at %s", s.AgentID, s.Replica) })
	most := atOnce(spans)
	d.Claim(ok == hooks && most > 1, "up to %d went on at the same time", most)
	return nil
}

// burst calls a hook for each agent, all at once, and returns how many succeeded.
func (d *demo) burst(ctx context.Context, all []agent, work time.Duration) (ok int) {
	hooks := []string{"pre-tool-use", "post-tool-use", "notification"}
	start := time.Now()
	var answers []<-chan answer
	for i, x := range all {
		at := []*replica{d.a, d.b}[i%2]
		answers = append(answers, d.send(ctx, at, hooks[i%len(hooks)], agents.Hook{SessionID: x.session, WorkMS: int(work.Milliseconds())}))
	}
	for _, c := range answers {
		if y := <-c; y.status == http.StatusOK {
			ok++
		}
	}
	d.Say("%d × 200 after %s, for %s of work", ok, demokit.Pretty(time.Since(start)), demokit.Pretty(time.Duration(len(all))*work))
	return ok
}
