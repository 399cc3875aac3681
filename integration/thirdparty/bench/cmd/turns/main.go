// Command turns compares package turns with other ways to handle messages of entities: the same work in one run, each
// system in its turn. It starts the server that it needs.
//
//	go run ./cmd/turns                     # all, in less than an hour
//	go run ./cmd/turns -only growth        # one part; "systems", "senders" and "interrupts" are the others
//	go run ./cmd/turns -quick              # one short round
//
// pg-boss needs npm, which fetches it and a Node.js on the first run; -pgboss=false leaves it out.
//
// It prints Markdown. The exit code is 1 if a message was handled twice, or if a system that promises an order broke it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/gauge"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/queue"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/report"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := compare(ctx, parse())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "turns:", err)
		os.Exit(1)
	}
}

// options are the values of the flags.
type options struct {
	rounds, workers, depth, many, base, times int
	duration, slice, snapshot                 time.Duration
	only, sizes                               string
	pgboss, quick                             bool
	entities                                  []int
}

func parse() options {
	o := options{entities: []int{1, 100, 1000, 10_000}}
	flag.IntVar(&o.rounds, "rounds", 3, "rounds, in which each system has its turn")
	flag.IntVar(&o.workers, "workers", 50, "workers of each system")
	flag.IntVar(&o.depth, "depth", 100_000, "messages that wait, where some do")
	flag.IntVar(&o.many, "many", 1_000_000, "messages of the one entity, and beside the snapshot")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "time of a system's turn")
	flag.DurationVar(&o.slice, "slice", 5*time.Second, "time for which each of a pair works before the other does, with a fifth of it before to warm up")
	flag.DurationVar(&o.snapshot, "snapshot", time.Minute, "for how long turns work under a snapshot")
	flag.StringVar(&o.only, "only", "", "the part to run: systems, growth, senders or interrupts; default all")
	flag.StringVar(&o.sizes, "entities", "", "the numbers of entities with which systems are compared, separated by commas; default 1,100,1000,10000")
	flag.BoolVar(&o.pgboss, "pgboss", true, "compare with pg-boss, too")
	flag.BoolVar(&o.quick, "quick", false, "one round of 300ms with few messages: a smoke test, in which systems still open their connections")
	flag.Parse()
	o.base, o.times = 10_000, 200
	if o.sizes != "" {
		o.entities = nil
		for size := range strings.SplitSeq(o.sizes, ",") {
			n, err := strconv.Atoi(size)
			if err != nil || n < 1 {
				fmt.Fprintln(os.Stderr, "turns: -entities:", size)
				os.Exit(2)
			}
			o.entities = append(o.entities, n)
		}
	}
	if o.quick {
		o.rounds, o.duration, o.slice, o.snapshot, o.depth, o.many, o.base, o.times, o.entities = 1, 300*time.Millisecond, 300*time.Millisecond, 900*time.Millisecond, 1000, 2000, 100, 20, []int{1, 100}
	}
	return o
}

// settings are those of a server that keeps what it has acknowledged.
var settings = map[string]string{
	"synchronous_commit": "on", "max_connections": "300", "max_locks_per_transaction": "1024", "shared_buffers": "256MB", "max_wal_size": "4GB",
}

// A bench is one run.
type bench struct {
	options
	admin    string
	compared []queue.System
	broken   []error
}

func compare(ctx context.Context, o options) error {
	server, err := pgserver.Start(ctx, pgserver.Options{Settings: settings})
	if err != nil {
		return err
	}
	defer server.Close() //nolint:errcheck // the end of the run
	machine := report.ThisMachine(map[string]string{"PostgreSQL": server.Version()})
	fmt.Printf("%s, %d cores, load %s; %s; %v\n\n", machine.CPU, machine.Cores, machine.Load, machine.Date, machine.Versions)
	b := &bench{options: o, admin: server.DSN(""), compared: queue.Systems}
	if o.pgboss {
		b.compared = slices.Concat(queue.Systems, queue.PgBoss)
	}
	ran := false
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"systems", b.systems}, {"growth", b.grow}, {"senders", b.senders}, {"interrupts", b.interrupts}} {
		if o.only != "" && o.only != part.name {
			continue
		}
		ran = true
		if err := part.run(ctx); err != nil {
			return err
		}
	}
	if !ran {
		return fmt.Errorf("there is no part %q", o.only)
	}
	fmt.Printf("\nLoad at the end: %s\n", report.ThisMachine(nil).Load)
	return errors.Join(b.broken...)
}

// measure runs a system once, and checks what it did.
func (b *bench) measure(ctx context.Context, s queue.System, load queue.Load) (queue.Result, error) {
	load.Workers = b.workers
	r, err := queue.Measure(ctx, b.admin, s, load)
	if err == nil {
		b.check(s, r)
	}
	return r, err
}

// check looks whether the work was done as it must be.
func (b *bench) check(s queue.System, r queue.Result) {
	if r.Twice > 0 || s.Ordered && r.Disorder > 0 {
		b.broken = append(b.broken, fmt.Errorf("%s: %d messages twice, %d out of order", s.Name, r.Twice, r.Disorder))
	}
}

// systems compares them at each number of entities, without and with messages that wait, and then their latency.
func (b *bench) systems(ctx context.Context) error {
	const base = 1 // in b.compared
	rate := func(r queue.Result) float64 { return r.Rate }
	timed := slices.Min([]int{1000, b.entities[len(b.entities)-1]})
	peak := make([]float64, len(b.compared)) // with as many entities as are timed: with fewer, messages coalesce
	for _, entities := range b.entities {
		for _, depth := range []int{0, b.depth} {
			fmt.Printf("## %d entities, %d messages wait\n\n| system | messages/s | of %s | out of order | overlaps |\n|---|--:|--:|--:|--:|\n", entities, depth, b.compared[base].Name)
			all, err := rounds(b.rounds, len(b.compared), func(i int) (queue.Result, error) {
				return b.measure(ctx, b.compared[i], queue.Load{Entities: entities, Depth: depth, Duration: b.duration})
			})
			if err != nil {
				return err
			}
			for i, s := range b.compared {
				median, last := gauge.MedianOf(all[i], rate), all[i][b.rounds-1]
				fmt.Printf("| %s | %.0f | %.2f | %d | %d |\n", s.Name, median, median/max(gauge.MedianOf(all[base], rate), 1), last.Disorder, last.Overlaps)
				if depth == 0 && entities == timed {
					peak[i] = median
				}
			}
			fmt.Println()
		}
	}
	fmt.Printf("## From the begin of the sender's transaction to the handler, %d entities\n\n| system | messages/s | p50 ms | p99 ms |\n|---|--:|--:|--:|\n", timed)
	all, err := rounds(b.rounds, len(b.compared), func(i int) (queue.Result, error) {
		return b.measure(ctx, b.compared[i], queue.Load{Entities: timed, Rate: max(peak[i]/2, 1), Duration: 2 * b.duration})
	})
	if err != nil {
		return err
	}
	for i, s := range b.compared {
		at := func(q float64) float64 {
			return gauge.MedianOf(all[i], func(r queue.Result) float64 { return ms(r.Latency.At(q)) })
		}
		fmt.Printf("| %s | %.0f of %.0f | %.1f | %.1f |\n", s.Name, gauge.MedianOf(all[i], rate), peak[i], at(0.5), at(0.99))
	}
	fmt.Println()
	return nil
}

// rounds gives each of n its turn in each round, and returns the results of each.
func rounds[T any](count, n int, measure func(i int) (T, error)) ([][]T, error) {
	all := make([][]T, n)
	for range count {
		for i := range n {
			r, err := measure(i)
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], r)
		}
	}
	return all, nil
}

// senders compares Send with the same rows by hand.
func (b *bench) senders(ctx context.Context) error {
	const writers = 64
	fmt.Printf("\n## %d writers commit\n\n| each transaction | transactions/s | of the first row | server's processors, µs each | client's | both, of the first row |\n|---|--:|--:|--:|--:|--:|\n", writers)
	all, err := rounds(b.rounds, len(queue.SendWays), func(i int) (queue.Sending, error) {
		return queue.Senders(ctx, b.admin, queue.SendWays[i], writers, b.duration)
	})
	if err != nil {
		return err
	}
	of := func(i int) (rate, server, client float64) {
		return gauge.MedianOf(all[i], func(s queue.Sending) float64 { return s.Rate }),
			gauge.MedianOf(all[i], func(s queue.Sending) float64 { return 1000 * ms(s.Server) }),
			gauge.MedianOf(all[i], func(s queue.Sending) float64 { return 1000 * ms(s.Client) })
	}
	rate0, s0, c0 := of(0)
	for i, way := range queue.SendWays {
		rate, s, c := of(i)
		fmt.Printf("| %s | %.0f | %.2f | %.0f | %.0f | %.2f |\n", way.Name, rate, rate/max(rate0, 1), s, c, (s+c)/max(s0+c0, 1))
	}
	return nil
}

// interrupts measures how long an interrupt from another replica takes.
func (b *bench) interrupts(ctx context.Context) error {
	fmt.Print("\n## From Interrupt on one replica to the end of the context on another\n\n| other turns of the replica | p50 ms | p99 ms | Interrupt alone, p50, p99 | a SELECT 1 at that time, p50, p99 |\n|--:|--:|--:|--:|--:|\n")
	for _, busy := range []int{0, b.workers} {
		took, err := queue.Interrupts(ctx, b.admin, b.times, busy)
		if err != nil {
			return err
		}
		fmt.Printf("| %d | %.1f | %.1f | %.1f, %.1f | %.1f, %.1f |\n", busy, ms(took.All.At(0.5)), ms(took.All.At(0.99)),
			ms(took.Call.At(0.5)), ms(took.Call.At(0.99)), ms(took.Ping.At(0.5)), ms(took.Ping.At(0.99)))
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// grow compares turns with themselves beside much that waits.
func (b *bench) grow(ctx context.Context) error {
	plain := queue.Load{Entities: b.base, Depth: 10 * b.base, Duration: time.Duration(b.rounds) * b.duration}
	beside := plain
	beside.Beside = b.many
	many := queue.Load{Entities: b.base, Depth: b.many, Duration: b.snapshot}
	snapshot := many
	snapshot.Snapshot = true
	fmt.Print("## A cost that does not grow\n\nBoth of a pair work by turns.\n\n| turns | messages/s, median | ratio | ratio in the last quarter | slices |\n|---|--:|--:|--:|--:|\n")
	for _, pair := range []struct {
		names [2]string
		loads [2]queue.Load
	}{
		{[2]string{fmt.Sprintf("%d entities with ten messages each", b.base), fmt.Sprintf("the same, beside one entity with %d", b.many)}, [2]queue.Load{plain, beside}},
		{[2]string{fmt.Sprintf("%d messages of %d entities", b.many, b.base), fmt.Sprintf("the same, while a snapshot is held, for %v", 2*b.snapshot)}, [2]queue.Load{many, snapshot}},
	} {
		for i := range pair.loads {
			pair.loads[i].Workers = b.workers
		}
		rates, results, err := queue.Pair(ctx, b.admin, queue.Systems[0], pair.loads, b.slice)
		if err != nil {
			return err
		}
		for _, r := range results {
			b.check(queue.Systems[0], r)
		}
		var of [2][]float64
		var ratios []float64
		for _, slice := range rates {
			of[0], of[1], ratios = append(of[0], slice[0]), append(of[1], slice[1]), append(ratios, slice[1]/max(slice[0], 1))
		}
		fmt.Printf("| %s | %.0f | | | |\n", pair.names[0], gauge.Median(of[0]))
		fmt.Printf("| %s | %.0f | %.2f | %.2f | %d |\n", pair.names[1], gauge.Median(of[1]), gauge.Median(ratios), gauge.Median(ratios[len(ratios)*3/4:]), len(ratios))
	}
	return nil
}
