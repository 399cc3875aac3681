package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/monitor"
)

// lockList shows the list of locks that an operator sees.
func (d *demo) lockList(ctx context.Context) error {
	x, err := d.newAgent(ctx, d.b, "miller")
	if err != nil {
		return err
	}
	working, enough := context.WithCancel(ctx)
	defer enough()
	hook := d.send(working, d.b, "pre-tool-use", agents.Hook{SessionID: x.session, WorkMS: 60_000})
	if _, err := d.awaitSpan(ctx, x, d.b); err != nil {
		return err
	}
	url := d.b.URL + monitor.Path
	d.Say("a hook at B works on agent %d;  GET %s", x.id, d.Paint(demokit.Cyan, url))
	y := d.do(ctx, http.MethodGet, url+fmt.Sprintf("?q=agent/%d", x.id), nil)
	if y.err != nil {
		return y.err
	}
	var list monitor.Snapshot
	if err := json.Unmarshal([]byte(y.body), &list); err != nil {
		return fmt.Errorf("%d %s: %w", y.status, y.body, err)
	}
	seen := false
	for _, l := range list.Locks {
		since := "?"
		if l.HeldSince != nil {
			since = fmt.Sprintf("for %.3f s (%s)", l.Duration, l.HeldSince.Source)
		}
		d.Draw(d.Paint(demokit.Faint, fmt.Sprintf("%s  pid %d  %s  %s  granted %t  %s", l.Key.Text, l.PID, l.ApplicationName, l.Mode, l.Granted, since)))
		seen = seen || l.Granted && l.ApplicationName == "agents/B" && l.Key.Text == fmt.Sprintf("agent/%d", x.id)
	}
	d.Claim(seen, "the list has the lock, its holder, and since when")
	d.onThePage(ctx, fmt.Sprintf("agent/%d", x.id), "agents/B")
	enough()
	<-hook // it ended early
	return nil
}

// Stay keeps the replicas busy until ctx ends, so that there is something to see.
func (d *demo) Stay(ctx context.Context) {
	d.Say("who holds what, since when, who waits, and what happened, while hooks go on:")
	d.Draw(d.Paint(demokit.Cyan, d.page.url))
	d.Say("and the list for programs, at either replica:")
	d.Draw(d.Paint(demokit.Cyan, d.a.URL+monitor.Path), d.Paint(demokit.Cyan, d.b.URL+monitor.Path))
	d.Say("Ctrl-C ends it")
	var clients sync.WaitGroup
	for i, session := range []string{"tailor", "smith", "weaver", "tailor"} {
		at := []*replica{d.a, d.b}[i%2]
		clients.Go(func() {
			for ctx.Err() == nil {
				y := d.post(ctx, at, "pre-tool-use", agents.Hook{SessionID: session, WorkMS: 500 + rand.IntN(1500)})
				select {
				case <-ctx.Done():
				case <-time.After(max(y.retryAfter, 200*time.Millisecond)):
				}
			}
		})
	}
	clients.Wait()
	d.Printf("\n")
}
