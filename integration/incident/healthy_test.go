//go:build integration

package incident

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/shards"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/once"
	oncepg "github.com/pglatch/pglatch/once/postgres"
	"github.com/pglatch/pglatch/turns"
)

// worker is the role of a process of the busy fleet, which uses everything at once until it reads a line.
const worker = "worker"

var carts = namespace.Must(4, "cart")

// A busyWorker is the content of a process of the busy fleet.
type busyWorker struct {
	memberConfig
	locker *advisory.Locker
	pool   *pgxpool.Pool
	work   sync.WaitGroup
}

func (w *busyWorker) mailbox(ctx context.Context) (*turns.Mailbox, error) {
	m, err := turns.Open(ctx, turns.Config{Pool: w.pool, Name: "carts", Namespace: carts, Node: w.Name, Locker: w.locker})
	if err == nil {
		err = m.Migrate(ctx)
	}
	return m, err
}

// always runs a part of the work until ctx ends. An error before that ends the process.
func (w *busyWorker) always(ctx context.Context, part func(ctx context.Context) error) {
	w.work.Go(func() {
		for ctx.Err() == nil {
			if err := part(ctx); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, w.Name, err)
				os.Exit(1)
			}
		}
	})
}

// work is a process of the busy fleet. It says "done" when all its work has begun.
func work(ctx context.Context, c memberConfig) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := &busyWorker{memberConfig: c}
	if w.pool, err = pgxpool.New(ctx, c.DSN+"&pool_max_conns=8"); err != nil {
		return err
	}
	defer w.pool.Close()
	answer := introspect.Config{Service: c.Name}
	if w.locker, err = advisory.Open(ctx, advisory.Config{
		DSN: c.DSN, Wait: advisory.NoTimeout, SessionTTL: time.Minute, ApplicationName: c.Name, Answer: answer, LocksPerConn: 8,
	}); err != nil {
		return err
	}
	defer w.locker.Close()
	if err := errors.Join(w.elect(ctx, "reports", 21, answer), w.elect(ctx, "billing", 22, answer), w.shard(ctx, answer), w.tick(ctx), w.turn(ctx)); err != nil {
		return err
	}
	for range 3 {
		w.always(ctx, w.lock)
	}
	fmt.Println("done")
	_ = bufio.NewScanner(os.Stdin).Scan()
	stop()
	w.work.Wait()
	return nil
}

// lock takes an order, with another one under it, or a lock that is shared, or a slot.
func (w *busyWorker) lock(ctx context.Context) error {
	brief := func(ctx context.Context) error { return pause.For(ctx, pause.AtMost(4*time.Millisecond)) }
	var err error
	switch n := rand.Int64N(20); rand.IntN(4) {
	case 0:
		err = w.locker.Do(ctx, orders.ID(n), func(ctx context.Context) error { return w.locker.Do(ctx, orders.ID(n+100), brief) })
	case 1:
		err = w.locker.With(advisory.Options{Shared: true}).Do(ctx, orders.ID(200+n/4), brief)
	case 2:
		var slot *advisory.Lock
		if slot, err = w.locker.AcquireSlot(ctx, orders.ID(300), 3); err == nil {
			err = errors.Join(brief(ctx), slot.Release())
		}
	default:
		err = w.locker.Do(ctx, orders.ID(n), brief)
	}
	return errors.Join(err, pause.For(ctx, pause.AtMost(40*time.Millisecond)))
}

func (w *busyWorker) elect(ctx context.Context, name string, id int64, answer introspect.Config) error {
	backend, err := postgres.New(postgres.Config{DSN: w.DSN, Key: jobs.ID(id), CreateTable: true, Answer: answer})
	if err != nil {
		return err
	}
	e, err := leader.New(leader.Config{Name: name, Identity: w.Name, Backend: backend, LeaseDuration: time.Minute})
	if err == nil {
		w.always(ctx, func(ctx context.Context) error {
			return e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
		})
	}
	return err
}

func (w *busyWorker) shard(ctx context.Context, answer introspect.Config) error {
	backend, err := shardspg.New(shardspg.Config{DSN: w.DSN, Namespace: tenants, CreateTable: true, Answer: answer})
	if err != nil {
		return err
	}
	node, err := shards.New(shards.Config{Name: "tenants", Identity: w.Name, Backend: backend, Count: 12, LeaseDuration: time.Minute})
	if err == nil {
		w.always(ctx, func(ctx context.Context) error {
			return node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
		})
	}
	return err
}

// tick runs a job once a second.
func (w *busyWorker) tick(ctx context.Context) error {
	store, err := oncepg.New(oncepg.Config{Pool: w.pool, CreateTable: true})
	if err != nil {
		return err
	}
	r, err := once.New(once.Config{Store: store, Node: w.Name, Window: time.Hour})
	if err == nil {
		w.always(ctx, func(ctx context.Context) error {
			_, err := r.Do(ctx, "totals", time.Now().Truncate(time.Second), func(ctx context.Context) error { return pause.For(ctx, 20*time.Millisecond) })
			return errors.Join(err, pause.For(ctx, 200*time.Millisecond))
		})
	}
	return err
}

// turn sends messages to carts, and handles those of all.
func (w *busyWorker) turn(ctx context.Context) error {
	m, err := w.mailbox(ctx)
	if err == nil {
		w.always(ctx, func(ctx context.Context) error {
			return m.Serve(ctx, func(ctx context.Context, _ *turns.Turn) error { return pause.For(ctx, 2*time.Millisecond) })
		})
		w.always(ctx, func(ctx context.Context) error {
			err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
				_, err := m.Send(ctx, tx, carts.ID(rand.Int64N(10)), turns.Message{Body: []byte("add")})
				return err
			})
			return errors.Join(err, pause.For(ctx, 100*time.Millisecond))
		})
	}
	return err
}

// slow are the verdicts about what takes long or does not answer. On a machine that stalls they are right.
var slow = []string{"holder-silent", "process-silent", "held-long", "queue-growing", "starving-writer", "no-leader", "turn-stuck", "backlog-growing", "commits-wait", "follower-cannot-connect", "holder-idle-in-transaction"}

// A pulse notes when the machine stalled: when what takes 11 ms took 0.1 s.
type pulse struct {
	mu      sync.Mutex
	stalled time.Time
	stalls  int
}

func (p *pulse) beat(ctx context.Context, conn *pgx.Conn) {
	for ctx.Err() == nil {
		began := time.Now()
		if pause.For(ctx, 10*time.Millisecond) != nil {
			return
		}
		if _, err := conn.Exec(ctx, "SELECT 1"); err != nil {
			return
		}
		if time.Since(began) > 100*time.Millisecond {
			p.mu.Lock()
			p.stalled, p.stalls = time.Now(), p.stalls+1
			p.mu.Unlock()
		}
	}
}

// stalling reports whether the machine stalled in the last 10 s.
func (p *pulse) stalling() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.stalled) < 10*time.Second
}

// A busyFleet is the processes under a healthy load.
type busyFleet struct {
	*console
	pulse   pulse
	workers []*process
	started int
	excused int
	never   []string // verdicts that no machine is too slow for
}

// start starts a worker. It says "done" when its work has begun.
func (b *busyFleet) start(dsn string) *process {
	b.t.Helper()
	b.started++
	name := fmt.Sprint("worker-", b.started)
	return &process{proctest.Start(b.t, proctest.As(b.t, worker, memberConfig{Name: name, DSN: dsn})), name}
}

// deploy replaces each worker by a new one, one after the other, and returns what was wrong meanwhile.
func (b *busyFleet) deploy(dsn string) (all []string) {
	b.t.Helper()
	for i, old := range b.workers {
		b.workers[i] = b.start(dsn)
		await.Until(b.t, patience, func() bool {
			all = append(all, b.watch(1)...)
			return contains(b.workers[i].Stdout.String(), "done")
		}, "a new process does not begin")
		old.Tell("stop")
		await.Until(b.t, patience, func() bool {
			all = append(all, b.watch(1)...)
			select {
			case <-old.Done:
				return true
			default:
				return false
			}
		}, "an old process does not end")
		require.Zero(b.t, old.Wait(), "a clean end")
	}
	return all
}

// wrong are the verdicts of the page and of the terminal that are not those of a machine that stalls.
func (b *busyFleet) wrong() (all []string) {
	b.t.Helper()
	verdicts := b.verdicts("fleet")
	if !b.short {
		verdicts = append(verdicts, b.raised("fleet")...)
	}
	for _, v := range verdicts {
		if b.pulse.stalling() && slices.Contains(slow, v.Name) {
			b.excused++
			continue
		}
		said := fmt.Sprintf("%s %s %s: %s %q", v.Name, v.Key, v.Subject, v.Text, v.Evidence)
		all = append(all, said)
		if !slices.Contains(slow, v.Name) {
			b.never = append(b.never, said)
		}
	}
	return all
}

// watch looks some times, each 0.2 s after the last one, and returns what was wrong.
func (b *busyFleet) watch(looks int) (all []string) {
	b.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for range looks {
		all = append(all, b.wrong()...)
		<-tick.C
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestAHealthyBusyFleetRaisesNoVerdict(t *testing.T) {
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_connections": "200"}})
	dsn := server.DSN("postgres")
	b := &busyFleet{console: &console{t: t}}
	for range 3 {
		b.workers = append(b.workers, b.start(dsn))
	}
	for _, p := range b.workers {
		p.Expect("done")
	}
	b.console = openConsole(t, map[string]string{"fleet": dsn})
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var beating sync.WaitGroup
	beating.Go(func() { b.pulse.beat(ctx, conn) })
	defer func() { cancel(); beating.Wait() }()
	looks, rounds := soak.Size(t, 20, 250), soak.Size(t, 1, 6)
	for range rounds {
		var wrong []string
		for range soak.Size(t, 3, 1) { // a machine under load can be slow without a stall: then once more
			wrong = b.watch(looks)
			wrong = append(wrong, b.deploy(dsn)...)
			wrong = append(wrong, b.watch(looks)...)
			require.Empty(t, b.never)
			if len(wrong) == 0 {
				break
			}
			t.Log(wrong)
		}
		require.Empty(t, wrong)
	}
	t.Logf("%d processes, %d stalls of this machine, %d verdicts excused by them", b.started, b.pulse.stalls, b.excused)

	// The control: a process of the same fleet stops.
	hung := b.workers[0]
	hung.Signal(syscall.SIGSTOP)
	await.Until(t, patience, func() bool {
		return slices.ContainsFunc(b.verdicts("fleet"), func(v monitor.Verdict) bool {
			return v.Name == "holder-silent" && slices.ContainsFunc(v.Who, func(who string) bool { return contains(who, hung.name) })
		})
	}, func() string { return fmt.Sprint("the stopped process is not named: ", b.verdicts("fleet")) })
	hung.Signal(syscall.SIGCONT)
	await.Until(t, patience, func() bool { return len(b.wrong()) == 0 }, func() string { return fmt.Sprint("quiet again: ", b.wrong()) })
}
