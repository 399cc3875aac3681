//go:build integration

package turns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/tally"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

var entities = namespace.Must(1, "entity")

const (
	serving = "serving" // a role: answers messages until it is killed
	holding = "holding" // a role: keeps its first turn until it is told to commit
	ttl     = 2 * time.Second
)

func TestMain(m *testing.M) {
	proctest.Play(serving, serve)
	proctest.Play(holding, hold)
	pgtest.Main(m)
}

// A node says what a process is.
type node struct {
	DSN, Name string
	Workers   int // 0 = the default
	TTL       time.Duration
}

// tables are what handlers write. Their numbers come from one sequence, so that they can be compared.
const tables = `CREATE SEQUENCE events;
	CREATE TABLE begun (n bigint DEFAULT nextval('events'), at timestamptz DEFAULT clock_timestamp(), entity text, token bigint);
	CREATE TABLE done (n bigint DEFAULT nextval('events'), entity text, number bigint, id text, token bigint)`

// mailbox is the configuration of the mailbox. No message dies of the faults.
func mailbox(pool *pgxpool.Pool) turns.Config {
	return turns.Config{
		Pool: pool, Name: "box", Namespace: entities,
		Batch: 3, MaxAttempts: 1_000_000, Pause: time.Millisecond, MaxPause: 10 * time.Millisecond,
	}
}

// open opens the mailbox of a process that serves.
func (n node) open(ctx context.Context) (*turns.Mailbox, *pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, n.DSN+"&pool_max_conns=20")
	if err != nil {
		return nil, nil, err
	}
	var locker *advisory.Locker
	for locker == nil { // a slow machine, or a session that was terminated meanwhile
		locker, err = advisory.Open(ctx, advisory.Config{DSN: n.DSN, LocksPerConn: 100, SessionTTL: n.TTL, ApplicationName: n.Name})
		if err != nil && pause.For(ctx, 100*time.Millisecond) != nil {
			return nil, nil, err
		}
	}
	config := mailbox(pool)
	config.Locker, config.Node, config.Concurrency = locker, n.Name, n.Workers
	config.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)) // shown if the test fails
	box, err := turns.Open(ctx, config)
	return box, pool, err
}

// serve serves until ctx ends, whatever fails at its beginning.
func (n node) serve(ctx context.Context, box *turns.Mailbox, handler turns.Handler) error {
	for {
		err := box.Serve(ctx, handler)
		if pause.For(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// begin notes that a turn has begun.
func begin(ctx context.Context, pool *pgxpool.Pool, t *turns.Turn) error {
	_, err := pool.Exec(ctx, "INSERT INTO begun (entity, token) VALUES ($1, $2)", t.Entity().Entity(), t.Token())
	return err
}

// commit commits a turn with a row for each of its messages.
func commit(ctx context.Context, t *turns.Turn) error {
	return t.Commit(ctx, func(tx pgx.Tx) error {
		for _, m := range t.Messages() {
			if _, err := tx.Exec(ctx, "INSERT INTO done (entity, number, id, token) VALUES ($1, $2, $3, $4)", t.Entity().Entity(), m.Number, m.ID, t.Token()); err != nil {
				return err
			}
		}
		return nil
	})
}

// serve answers messages until SIGTERM. Some attempts fail, some turns are steered, and a commit does not look whether
// the turn is still its own.
func serve(ctx context.Context, n node) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	box, pool, err := n.open(ctx)
	if err != nil {
		return err
	}
	go n.pulse(ctx, pool)
	return n.serve(ctx, box, func(ctx context.Context, t *turns.Turn) error {
		ctx = context.WithoutCancel(ctx)
		if err := begin(ctx, pool, t); err != nil {
			return err
		}
		switch rand.IntN(10) { //nolint:gosec // chooses what a turn does
		case 0:
			return errors.New("this attempt fails")
		case 1, 2, 3:
			if _, err := t.More(ctx); err != nil {
				return err
			}
		}
		return commit(ctx, t)
	})
}

// hold keeps its turns even if their contexts end. It commits them when the test asks it to.
func hold(ctx context.Context, n node) error {
	box, pool, err := n.open(ctx)
	if err != nil {
		return err
	}
	told := make(chan struct{})
	go func() {
		bufio.NewScanner(os.Stdin).Scan()
		close(told)
	}()
	return n.serve(ctx, box, func(ctx context.Context, t *turns.Turn) error {
		ctx = context.WithoutCancel(ctx)
		if err := begin(ctx, pool, t); err != nil {
			return err
		}
		fmt.Println("has", t.Token())
		<-told
		err := commit(ctx, t)
		fmt.Println("committed", err == nil, "stale", errors.Is(err, turns.ErrStale))
		return err
	})
}

var stageNodes = []string{"a", "b", "c"}

// A stage is a server of its own and processes that serve a mailbox, each behind a network of its own.
type stage struct {
	*bench
	server    *pgserver.Server
	networks  map[string]*faultproxy.Proxy
	processes map[string]*proctest.Process
	workers   int
}

// newStage starts them. Each process has a worker for each entity, so that a worker is always free.
func newStage(t *testing.T, workers int) *stage {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"synchronous_commit": "on"}})
	s := &stage{newBench(t, dbtest.Open(t, server.DSN(""))), server, map[string]*faultproxy.Proxy{}, map[string]*proctest.Process{}, workers}
	s.Exec(watched)
	s.Exec(`CREATE TABLE faults (at timestamptz DEFAULT clock_timestamp(), what text, who text)`)
	for _, name := range stageNodes {
		network, err := faultproxy.New(t.Context(), fmt.Sprintf("%s:%d", server.Host(), server.Port()))
		require.NoError(t, err)
		t.Cleanup(network.Close)
		s.networks[name] = network
		s.start(t, name)
	}
	return s
}

func (s *stage) start(t *testing.T, name string) {
	t.Helper()
	dsn, err := s.networks[name].URL(s.server.DSN(""))
	require.NoError(t, err)
	s.processes[name] = proctest.Start(t, proctest.As(t, serving, node{dsn, name, s.workers, ttl}))
}

// silent waits until the server has ended the sessions of a node's Locker, and so freed its locks.
func (s *stage) silent(t *testing.T, name string) {
	t.Helper()
	await.Until(t, await.Patience, func() bool { return s.sessions(name) == 0 }, "the server gives up the node")
}

// A fault strikes one process, or all.
type fault struct {
	name string
	all  bool
	do   func(t *testing.T, s *stage, name string, struck func()) // calls struck when it has happened, before it ends
}

var faults = []fault{
	{"killed process", false, func(t *testing.T, s *stage, name string, struck func()) {
		t.Helper()
		s.processes[name].Kill()
		struck()
		s.start(t, name)
	}},
	{"stopped process", false, func(t *testing.T, s *stage, name string, struck func()) {
		t.Helper()
		s.processes[name].Signal(syscall.SIGSTOP)
		struck()
		s.silent(t, name)
		s.processes[name].Signal(syscall.SIGCONT)
	}},
	{"ended session", false, func(t *testing.T, s *stage, name string, struck func()) {
		t.Helper()
		s.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, name)
		struck()
	}},
	{"silent network", false, func(t *testing.T, s *stage, name string, struck func()) {
		t.Helper()
		s.networks[name].Set(faultproxy.Hold)
		struck()
		s.silent(t, name)
		s.networks[name].Set(faultproxy.Pass)
	}},
	{"crashed server", true, func(t *testing.T, s *stage, _ string, struck func()) {
		t.Helper()
		require.NoError(t, s.server.Restart(t.Context(), pgserver.Immediate))
		s.Pool.Reset()
		s.pool.Reset()
		struck()
	}},
	{"rolling deploy", true, func(t *testing.T, s *stage, _ string, struck func()) {
		t.Helper()
		for _, name := range stageNodes {
			s.processes[name].Stop()
			require.Zero(t, s.processes[name].Wait())
			s.start(t, name)
		}
		struck()
	}},
}

// strike has a fault happen, and waits until all nodes serve again.
func (s *stage) strike(t *testing.T, f fault, name string) {
	t.Helper()
	names := []string{name}
	if f.all {
		names = stageNodes
	}
	s.Exec(`INSERT INTO faults (what, who) SELECT 'strikes', unnest($1::text[])`, names)
	f.do(t, s, name, func() { s.Exec(`INSERT INTO faults (what, who) SELECT 'struck', unnest($1::text[])`, names) })
	for _, name := range names {
		await.Until(t, await.Patience, func() bool {
			return dbtest.Ask[bool](s.Database, `SELECT EXISTS (SELECT FROM noted WHERE what = 'joined' AND who LIKE $1 || '/%'
				AND at > (SELECT max(at) FROM faults WHERE what = 'strikes' AND who = $1))`, name)
		}, func() string { return name + " serves again after: " + f.name })
	}
	tally.Faults(t, tally.Fault{Name: f.name, Times: 1})
}
