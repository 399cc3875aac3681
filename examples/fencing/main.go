// Command fencing shows the limits of a lease alone, and the purpose of its token:
//
//	go run ./examples/fencing
//
// A writer, a process of its own, acquires a lease, renews it with heartbeats, checks that it still has the lease, and
// writes. Between the check and the write it is stopped, as by a virtual machine that moves, a laptop that sleeps or a
// container that gets no CPU. Its lease expires, and another writer takes over and writes. Then the first writer
// resumes. It has already checked, so it writes.
//
// Nothing in the first writer can help, because it does not know that time has passed. The resource must: it refuses a
// token that is lower than one that it has seen. Four scenes show this:
//
//	                      without fencing             with fencing
//	HTTP                  the late write is stored    412 Precondition Failed
//	row in PostgreSQL     the late write is stored    postgres.Guard: the transaction aborts
//
// The HTTP scenes keep leases in SQLite and need only Go. The others find, start or fetch a
// PostgreSQL. Without one they are left out.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/sqlite"
)

func main() {
	demokit.Main("fencing: a writer is paused past its lease, and writes", "", runWriter, func(ctx context.Context, d *demokit.Demo) demokit.Story {
		s := &demo{d}
		dir := demokit.Must(os.MkdirTemp("", "fencing-"))
		s.Defer(func() error { return os.RemoveAll(dir) })
		store := demokit.Must(sqlite.Open(ctx, filepath.Join(dir, "locks.db"), sqlite.Config{}))
		s.Defer(store.Close)
		inSQLite := s.serveLocks(store)
		scenes := []demokit.Scene{
			{Title: "HTTP, a resource without fencing: the failure", Play: s.web(inSQLite, false)},
			{Title: "HTTP, a resource that refuses lower tokens", Play: s.web(inSQLite, true)},
		}
		if err := s.OpenDatabase(); err != nil {
			s.Say("no PostgreSQL, so its two scenes are left out: %v", err)
			return demokit.Story{Scenes: scenes}
		}
		s.Exec(schema)
		tables := demokit.Must(postgres.New(postgres.Config{Pool: s.Pool}))
		demokit.Check(tables.Migrate(ctx))
		inTables := s.serveLocks(tables)
		return demokit.Story{Scenes: append(scenes,
			demokit.Scene{Title: "PostgreSQL, writes without Guard: the failure", Play: s.table(inTables, row)},
			demokit.Scene{Title: "PostgreSQL, writes with Guard", Play: s.table(inTables, guardedRow)})}
	})
}

type demo struct{ *demokit.Demo }

// A lockServer is a lock server in this process.
type lockServer struct {
	url    string
	client *leasehttp.Client
}

func (s *demo) serveLocks(store lease.Store) lockServer {
	server := demokit.Must(leaseserver.New(leaseserver.Config{Store: store}))
	url := s.Serve(server.Handler())
	client := demokit.Must(leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{url}}))
	s.Cleanup(client.Close)
	s.Say("a lock server on %T listens at %s", store, url)
	return lockServer{url, client}
}

func (s *demo) web(locks lockServer, fencing bool) func(context.Context) {
	return func(ctx context.Context) {
		target := webResource{s.Serve(&document{fencing: fencing}) + "/document"}
		s.pause(ctx, locks, target, fencing, target.url)
	}
}

func (s *demo) table(locks lockServer, name string) func(context.Context) {
	return func(ctx context.Context) { s.pause(ctx, locks, tableResource{s.Pool, name}, name == guardedRow, name) }
}

// pause plays a scene: one writer is stopped between its check and its write, another
// takes over and writes, and the first resumes.
func (s *demo) pause(ctx context.Context, locks lockServer, target resource, fenced bool, name string) {
	first := s.Start("writer-1", locks.url, name)
	token := first.Await(0, checked).Text("token")
	s.Say("it has a lease of %s with token %s, and heartbeats", demokit.Pretty(ttl), token)
	s.Say("it has looked: the lease is good. It is about to write, and %s", s.Paint(demokit.Red, "kill -STOP"))
	first.Signal(syscall.SIGSTOP)
	s.Await("the end of the lease", func() bool {
		return demokit.Must(locks.client.Get(ctx, lockName)).State == lease.Expired
	})
	s.Say("no heartbeats: the lease has expired")

	const second = "by writer-2"
	held := demokit.Must(locks.client.AcquireWithRetry(ctx, lockName, "writer-2", leasehttp.AcquireOptions{TTL: ttl}))
	demokit.Check(target.write(ctx, held.Claim(), second))
	_ = locks.client.ReleaseOnce(ctx, held) // on an error the lease expires
	s.Say("writer-2 has a lease with token %d, writes, and releases it", held.FencingToken())

	s.Say("%s: writer-1 goes on with its write", s.Paint(demokit.Green, "kill -CONT"))
	first.Tell("")
	first.Signal(syscall.SIGCONT)
	outcome := first.Await(0, answered).Text("outcome")
	text := demokit.Must(target.read(ctx))
	s.Say("the write is answered: %s", outcome)
	s.Say("the document reads: %q", text)
	if fenced {
		s.Claim(strings.HasPrefix(outcome, errRefused.Error()), "the late write was refused")
		s.Claim(text == second, "what writer-2 wrote is still there")
	} else {
		s.Claim(outcome == stored && text != second, "without fencing the late write was stored, over what writer-2 had written")
	}
}

// The lock, and how long a writer keeps it without a heartbeat.
const (
	lockName = "document"
	ttl      = 3 * time.Second
)

// Messages that a writer logs.
const (
	checked  = "checked"
	answered = "answered"
	stored   = "stored"
)

// runWriter is the main function of the process that gets paused. It does everything right: it renews its lease in the
// background and checks the lease right before it writes. Its arguments are the lock server's URL and the resource: a
// document's URL, row or guardedRow.
func runWriter(ctx context.Context, n *demokit.Node) error {
	n.Ready()
	server, name := n.Args[0], n.Args[1]
	var target resource = webResource{name}
	if name == row || name == guardedRow {
		pool, err := pgxpool.New(ctx, n.DSN)
		if err != nil {
			return err
		}
		defer pool.Close()
		target = tableResource{pool, name}
	}
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{server}})
	if err != nil {
		return err
	}
	defer client.Close()
	held, err := client.AcquireWithRetry(ctx, lockName, n.Name, leasehttp.AcquireOptions{TTL: ttl})
	if err != nil {
		return err
	}
	defer func() { _ = client.ReleaseOnce(ctx, held) }()
	work, _ := client.StartHeartbeat(ctx, held, leasehttp.HeartbeatOptions{})

	if work.Err() != nil { // the check
		return context.Cause(work)
	}
	n.Log.Info(checked, slog.Uint64("token", held.FencingToken()))
	<-n.Next // The process is stopped here. When it resumes, it knows nothing of the pause.
	outcome := stored
	if err = target.write(ctx, held.Claim(), "by writer-1, too late"); errors.Is(err, errRefused) {
		outcome = err.Error()
	} else if err != nil {
		return err
	}
	n.Log.Info(answered, slog.String("outcome", outcome))
	return nil
}
