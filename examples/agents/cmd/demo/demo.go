package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// A demo is the state that the scenes share.
type demo struct {
	*demokit.Narrator
	database *demokit.Database
	db       *pgxpool.Pool // of database
	a, b     *replica
	page     *page
	client   http.Client
}

// A replica is a process of examples/agents.
type replica = demokit.Process

func startReplica(ctx context.Context, name, dsn string) (*replica, error) {
	return demokit.StartProcess(ctx, name, replicaVariable+"="+name, dsnVariable+"="+dsn)
}

// Title implements demokit.Story, as the methods below do.
func (d *demo) Title() string {
	return "pglatch: two replicas, one PostgreSQL, one lock for each agent"
}

// Open starts the database and the replicas.
func (d *demo) Open(ctx context.Context) (err error) {
	if d.database, err = demokit.OpenDatabase(ctx, d.Narrator); err != nil {
		return err
	}
	d.db = d.database.Pool
	// Both start at once: on an empty database they take turns to create the tables.
	var errs [2]error
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.a, errs[0] = startReplica(ctx, "A", d.database.DSN)
	}()
	d.b, errs[1] = startReplica(ctx, "B", d.database.DSN)
	<-done
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	for _, r := range []*replica{d.a, d.b} {
		d.introduce(r)
	}
	d.page, err = openPage(ctx, d.database.DSN)
	return err
}

func (d *demo) introduce(r *replica) {
	d.Say("replica %s is process %d at %s", d.Paint(demokit.Cyan, r.Name), r.PID(), r.URL)
}

// Close ends everything that Open started.
func (d *demo) Close() (err error) {
	for _, r := range []*replica{d.a, d.b} {
		if r != nil {
			err = errors.Join(err, r.Kill())
		}
	}
	d.client.CloseIdleConnections()
	if d.page != nil {
		d.page.close()
	}
	if d.database != nil {
		err = errors.Join(err, d.database.Close())
	}
	return err
}

// Scenes returns one scene for each promise.
func (d *demo) Scenes() []demokit.Scene {
	return []demokit.Scene{
		{Title: "Hooks for one agent, at both replicas: one after another", Play: d.sameAgent},
		{Title: "Hooks for different agents: in parallel", Play: d.differentAgents},
		{Title: "A background worker skips a busy agent", Play: d.workerSkips},
		{Title: "A wait that takes too long is answered 423, and names the holder", Play: d.waitTimesOut},
		{Title: "kill -9 of a replica that holds a lock: the other has it at once", Play: d.killed},
		{Title: "A replica is stopped (SIGSTOP): its lock is free after the session's time", Play: d.stopped},
		{Title: "Everybody can see the locks", Play: d.lockList},
	}
}

// Logs returns the ends of the replicas' logs.
func (d *demo) Logs() string {
	return fmt.Sprintf("the end of A's log:\n%s\nand of B's:\n%s", d.a.Log.Tail(), d.b.Log.Tail())
}
