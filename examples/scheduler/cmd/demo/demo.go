package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// A demo is the state that the scenes share.
type demo struct {
	*demokit.Narrator
	database *demokit.Database
	nodes    []*node
	leader   *node // as the previous scenes left it
	follower *node
	client   http.Client
}

// A node is a process of examples/scheduler.
type node = demokit.Process

func (d *demo) start(ctx context.Context, name string) (*node, error) {
	n, err := demokit.StartProcess(ctx, name, nodeVariable+"="+name, dsnVariable+"="+d.database.DSN)
	if err != nil {
		return nil, err
	}
	d.nodes = append(d.nodes, n)
	d.Say("node %s is process %d at %s", d.Paint(demokit.Cyan, n.Name), n.PID(), n.URL)
	return n, nil
}

// Title implements demokit.Story, as the methods below do.
func (d *demo) Title() string { return "pglatch: two nodes, one PostgreSQL, one of them schedules" }

// Open starts the database.
func (d *demo) Open(ctx context.Context) (err error) {
	d.database, err = demokit.OpenDatabase(ctx, d.Narrator)
	return err
}

// Close ends everything that Open and the scenes started.
func (d *demo) Close() (err error) {
	for _, n := range d.nodes {
		err = errors.Join(err, n.Kill())
	}
	d.client.CloseIdleConnections()
	if d.database != nil {
		err = errors.Join(err, d.database.Close())
	}
	return err
}

// Scenes returns one scene for each promise.
func (d *demo) Scenes() []demokit.Scene {
	return []demokit.Scene{
		{Title: "Two nodes start: one of them runs the schedulers", Play: d.elect},
		{Title: "Queries, jobs and heartbeats: both", Play: d.serveAll},
		{Title: "kill -9 of the leader: the follower takes over", Play: d.killed},
		{Title: "The killed node comes back: it follows", Play: d.restarted},
		{Title: "SIGTERM to the leader: a hand-over in good order", Play: d.terminated},
	}
}

// Logs returns the ends of the nodes' logs.
func (d *demo) Logs() string { return demokit.Logs(d.nodes...) }

// Stay shows the leader until ctx ends.
func (d *demo) Stay(ctx context.Context) {
	d.Say("ask the nodes, or kill them; Ctrl-C ends it:")
	for _, n := range []*node{d.leader, d.follower} {
		d.Draw(d.Paint(demokit.Cyan, fmt.Sprintf("%s/leader   process %d", n.URL, n.PID())))
	}
	<-ctx.Done()
	d.Printf("\n")
}

// one returns a single value from the database.
func one[T any](ctx context.Context, d *demo, sql string, args ...any) (T, error) {
	rows, _ := d.database.Pool.Query(ctx, sql, args...)
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
}

// status sends a request to a node and returns the HTTP status.
func (d *demo) status(ctx context.Context, n *node, path string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := d.client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// awaitLog waits for an entry in a node's log and returns it.
func (d *demo) awaitLog(ctx context.Context, n *node, size int, text string) (demokit.Entry, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, demokit.Patience, fmt.Errorf("waited too long for %q in the log of %s", text, n.Name))
	defer cancel()
	return n.Log.Await(ctx, size, demokit.Message(text))
}
