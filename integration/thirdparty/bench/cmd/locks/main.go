// Command locks compares pglatch with its peers: all do the same work, in turns, in
// one run. It starts the servers that it needs.
//
//	go run ./cmd/locks            # all, in about 15 minutes
//	go run ./cmd/locks -quick     # one short round
//
// It prints Markdown and writes latest.json, latest.md and latest.svg into -out. The
// exit code is 1 if a pglatch system failed or one key had two holders.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/exclusion"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/plan"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/report"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/servers"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := role(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "locks:", err)
		os.Exit(1)
	}
}

// role runs the role that this process was started for.
func role(ctx context.Context) error {
	switch r := os.Getenv(worker.RoleEnv); r {
	case "":
		return bench(ctx)
	case worker.Role: // it ends with its input, so that Ctrl-C cannot cut a measurement in two
		return worker.Serve(context.WithoutCancel(ctx), os.Stdin, os.Stdout)
	default:
		return servers.Keep(ctx, system.Server(r), os.Stdin, os.Stdout)
	}
}

// options are the values of the flags.
type options struct {
	quick              bool
	systems, workloads string
	rounds             int
	duration           time.Duration
	out, dsn           string
}

// The values for -quick.
const (
	quickRounds   = 1
	quickDuration = 200 * time.Millisecond
)

func parse() options {
	var o options
	flag.BoolVar(&o.quick, "quick", false, "one round of 200ms, and no 100,000 locks or more: a smoke test")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds, in which each system has its turn")
	flag.DurationVar(&o.duration, "duration", 800*time.Millisecond, "time of a system's turn")
	flag.StringVar(&o.systems, "systems", "", "names with commas between; default all: "+strings.Join(names(), ","))
	flag.StringVar(&o.workloads, "workloads", "", "names with commas between; default all: "+strings.Join(allWorkloads(), ","))
	flag.StringVar(&o.out, "out", "results", "directory for latest.json, latest.md and latest.svg")
	flag.StringVar(&o.dsn, "dsn", "", "PostgreSQL server to make a database on, for a role that may; default: start one")
	flag.Parse()
	set := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	if o.quick && !set["rounds"] {
		o.rounds = quickRounds
	}
	if o.quick && !set["duration"] {
		o.duration = quickDuration
	}
	return o
}

func allWorkloads() []string {
	return []string{report.Random, report.Hot, report.TwoProcesses, report.Zipf, report.Beside, report.Hold, report.Loss}
}

func names() (all []string) {
	for _, s := range system.All() {
		all = append(all, s.Name)
	}
	return all
}

// choose returns the elements of all that a flag names, in the order of all.
func choose(flagName, value string, all []string) ([]string, error) {
	if value == "" {
		return all, nil
	}
	wanted := strings.Split(value, ",")
	for _, w := range wanted {
		if !slices.Contains(all, w) {
			return nil, fmt.Errorf("-%s: there is no %q: use %s", flagName, w, strings.Join(all, ","))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !slices.Contains(wanted, name) }), nil
}

func bench(ctx context.Context) (err error) {
	o := parse()
	if o.rounds < 1 || o.duration <= 0 {
		return fmt.Errorf("-rounds is %d and -duration %s: use positive ones", o.rounds, o.duration)
	}
	workloads, err := choose("workloads", o.workloads, allWorkloads())
	if err != nil {
		return err
	}
	chosen, err := choose("systems", o.systems, names())
	if err != nil {
		return err
	}
	systems := slices.DeleteFunc(system.All(), func(s system.System) bool { return !slices.Contains(chosen, s.Name) })
	dir, err := os.MkdirTemp("", "pglatch-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	table := filepath.Join(dir, "exclusion")
	if err := exclusion.Create(table); err != nil {
		return err
	}
	needed := map[system.Server]bool{}
	for _, s := range systems {
		needed[s.Needs] = true
	}
	set, err := servers.Start(ctx, o.dsn, needed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	p := &plan.Plan{
		Systems: systems, Workloads: workloads, Rounds: o.rounds, Duration: o.duration, Stocks: []int{1000, 10_000, 100_000, 1_000_000},
		Servers: set, Table: table, Log: os.Stderr,
	}
	if o.quick {
		p.Stocks = p.Stocks[:2]
	}
	r := newReport(p)
	if r.Rows, err = p.Run(ctx); err != nil {
		return err
	}
	r.Figures = r.Rows.Judge()
	if err := r.Write(o.out); err != nil {
		return err
	}
	fmt.Print(r.Markdown())
	return failed(r.Rows, systems)
}

// newReport describes the machine before it is under load.
func newReport(p *plan.Plan) *report.Report {
	versions := map[string]string{}
	for server, version := range p.Servers.Versions {
		versions[string(server)] = version
	}
	r := &report.Report{Machine: report.ThisMachine(versions), Rounds: p.Rounds, Duration: p.Duration, Titles: map[string]string{}}
	for _, s := range p.Systems {
		r.Titles[s.Name], r.Order = s.Title, append(r.Order, s.Name)
	}
	return r
}

// failed returns an error if a pglatch system did not do its work.
func failed(rows report.Rows, systems []system.System) error {
	var errs []error
	for _, r := range rows {
		ours := slices.ContainsFunc(systems, func(s system.System) bool { return s.Ours && s.Name == r.System })
		if r.Failed && ours {
			errs = append(errs, fmt.Errorf("%s, %s: %s", r.System, r.Workload, r.NotRun))
		}
	}
	return errors.Join(errs...)
}
