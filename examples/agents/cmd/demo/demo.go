package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A demo is what the scenes play on.
type demo struct {
	*narrator
	database *database
	db       *pgxpool.Pool // the driver's own view: it judges by what is in the database
	a, b     *replica
	client   http.Client
}

// patience bounds what takes a moment, on a slow and busy machine.
const patience = 30 * time.Second

// open starts the database and the replicas. close is right also after an error.
func (d *demo) open(ctx context.Context) (err error) {
	d.say("looking for a PostgreSQL (if there is none on this machine, one is downloaded)")
	if d.database, err = openDatabase(ctx); err != nil {
		return err
	}
	if d.db, err = pgxpool.New(ctx, d.database.dsn); err != nil {
		return err
	}
	var version string
	if err := d.db.QueryRow(ctx, `SELECT current_setting('server_version')`).Scan(&version); err != nil {
		return err
	}
	config := d.db.Config().ConnConfig
	d.say("PostgreSQL %s on %s:%d, database %s", version, config.Host, config.Port, config.Database)
	// Both at once: on an empty database they take turns to make the tables.
	var errs [2]error
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.a, errs[0] = startReplica(ctx, "A", d.database.dsn)
	}()
	d.b, errs[1] = startReplica(ctx, "B", d.database.dsn)
	<-done
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	for _, r := range []*replica{d.a, d.b} {
		d.introduce(r)
	}
	return nil
}

func (d *demo) introduce(r *replica) {
	d.say("replica %s is process %d at %s", d.paint(cyan, r.name), r.pid(), r.url)
}

// close ends everything that open started.
func (d *demo) close() (err error) {
	for _, r := range []*replica{d.a, d.b} {
		if r != nil {
			err = errors.Join(err, r.kill())
		}
	}
	d.client.CloseIdleConnections()
	if d.db != nil {
		d.db.Close()
	}
	if d.database != nil {
		err = errors.Join(err, d.database.close())
	}
	return err
}

// A scene shows one promise.
type scene struct {
	title string
	play  func(ctx context.Context) error
}

func (d *demo) scenes() []scene {
	return []scene{
		{"Hooks for one agent, at both replicas: one after another", d.sameAgent},
		{"Hooks for different agents: in parallel", d.differentAgents},
		{"A background worker skips a busy agent", d.workerSkips},
		{"A wait that takes too long is answered 423, and names the holder", d.waitTimesOut},
		{"kill -9 of a replica that holds a lock: the other has it at once", d.killed},
		{"A replica is stopped (SIGSTOP): its lock is free after the session's time", d.stopped},
		{"Everybody can see the locks", d.lockList},
	}
}
