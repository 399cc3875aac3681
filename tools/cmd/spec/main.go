// Command spec checks the Promela models of a directory with SPIN, and that each mutant of them has a counter-example.
//
//	go run -C tools ./cmd/spec ../spec
//	go run -C tools ./cmd/spec -large ../spec
//	go run -C tools ./cmd/spec -model lease ../spec
//	go run -C tools ./cmd/spec -story NO_MARGIN ../spec
//
// A model lists its checks and their bounds in its first comment. README.md of the directory lists the mutants: each is a
// switch that takes one protection away. The command fails in three cases: a check finds an error or is not exhaustive, a
// mutant has no counter-example, or README.md does not list exactly the switches of the models. It needs spin and gcc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	large := flag.Bool("large", false, "use the large bounds, which take hours")
	only := flag.String("model", "", "check only this model")
	story := flag.String("story", "", "print only the counter-example of this switch")
	flag.Parse()
	dir := "."
	if flag.NArg() > 0 {
		dir = flag.Arg(0)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, dir, *only, *large, *story); err != nil {
		fmt.Fprintln(os.Stderr, "spec:", err)
		stop()
		os.Exit(1)
	}
}

// run checks the models of a directory: all, or only one.
func run(ctx context.Context, dir, only string, large bool, story string) error {
	for _, program := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not installed: apt-get install %s", program, program)
		}
	}
	models, err := readModels(dir)
	if err != nil {
		return err
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return err
	}
	mutants, err := parseMutants(string(readme))
	if err != nil {
		return err
	}
	if err := compare(models, mutants); err != nil {
		return err
	}
	if only != "" {
		models = slices.DeleteFunc(models, func(m model) bool { return m.name != only })
	}
	jobs := plan(models, mutants, large, story)
	if len(jobs) == 0 {
		return errors.New("nothing to check")
	}
	work, err := os.MkdirTemp("", "spec")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	execute(ctx, work, jobs)
	return report(jobs, story != "")
}

// plan returns the jobs: first the checks, because they take longer.
func plan(models []model, mutants []mutant, large bool, story string) []*job {
	var jobs []*job
	for _, m := range models {
		for _, c := range m.checks {
			bounds, bitstate := strings.CutPrefix(c.bounds(large), "bitstate ")
			if story == "" && bounds != "" {
				jobs = append(jobs, &job{model: m, check: c, defines: strings.Fields(bounds), large: large, bitstate: bitstate})
			}
		}
	}
	for _, m := range models {
		for _, mu := range mutants {
			if mu.model == m.name && (story == "" || story == mu.name) {
				c := m.check(mu.check)
				jobs = append(jobs, &job{model: m, check: c, mutant: mu.name, defines: append(strings.Fields(c.bounds(false)), "-D"+mu.name)})
			}
		}
	}
	return jobs
}

// execute runs the jobs on all processors.
func execute(ctx context.Context, work string, jobs []*job) {
	queue := make(chan int)
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for i := range queue {
				jobs[i].run(ctx, filepath.Join(work, fmt.Sprint(i)))
			}
		})
	}
	for i := range jobs {
		queue <- i
	}
	close(queue)
	wg.Wait()
}

// report prints the results, with the counter-examples of mutants as stories. It returns an error if a job failed.
func report(jobs []*job, told bool) error {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "model\tcheck\tbounds\tstates\tdepth\ttime\tresult")
	var failed []string
	for _, j := range jobs {
		if j.err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", j.name(), j.err))
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.1fs\t%s\n", j.model.name, j.check.name, strings.ReplaceAll(strings.Join(j.defines, " "), "-D", ""),
			j.result.states, j.result.depth, j.took.Round(100*time.Millisecond).Seconds(), j.outcome())
	}
	_ = w.Flush() // a Builder does not fail
	fmt.Print(table.String())
	for _, j := range jobs {
		if len(j.story) > 0 && (told || j.mutant == "" || j.err == nil) {
			fmt.Printf("\n%s:\n", j.name())
			for _, line := range j.story {
				fmt.Println("  ", line)
			}
		}
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "\n"))
	}
	return nil
}
