// Command report runs the histories, and writes a report in Markdown: operations, faults by kind, the windows that were
// measured, controls, versions, machine and load. It runs in the root of the tree, with a PostgreSQL:
//
//	go run ./internal/test/cmd/withpg -- go run ./internal/test/cmd/report [-short] [-o report.md]
//
// It exits with 1 if a test failed. The report is written all the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/internal/test/tally"
)

// histories are the arguments of gotest: the tests that tally what they count. The short form leaves etcd out.
var histories = [][]string{
	{
		"-tags", "integration", "-p", "1", "-timeout", "3h", "-count=1", "-run",
		"NeverTwoHolders|HoldersOverlap|NoUpdateIsLost|WithoutALock|WhateverHappens|WithoutGuards|WithoutContexts|TrustMembership|AHistoryOver|" +
			"NoAcknowledgedLeaseIsLost|TheLastLeasesAreLost",
		"./integration/history", "./integration/election", "./integration/shards", "./integration/failover",
	},
	{"-C", "integration/thirdparty/etcd", "-timeout", "3h", "-count=1", "-run", "WhateverHappens|WithoutContexts|AHistoryOver", "."},
}

func main() {
	short := flag.Bool("short", false, "the short form, which takes minutes")
	out := flag.String("o", "dist/report.md", "the file of the report")
	flag.Parse()
	if err := report(context.Background(), *short, *out); err != nil {
		fmt.Fprintf(os.Stderr, "report: %v\n", err)
		os.Exit(1)
	}
}

func report(ctx context.Context, short bool, out string) error {
	dir, err := os.MkdirTemp("", "pglatch-report-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tallied, results := filepath.Join(dir, "tally"), filepath.Join(dir, "results")
	environment := append(os.Environ(), tally.Variable+"="+tallied, "PGLATCH_TEST_RESULTS="+results)
	runs := histories
	if short {
		runs = runs[:1]
	} else {
		environment = append(environment, soak.Variable+"=1")
	}
	r := run{facts: circumstances(ctx, short)}
	began := time.Now()
	var failed error
	for _, arguments := range runs {
		cmd := exec.CommandContext(ctx, "go", append([]string{"run", "./internal/test/cmd/gotest"}, arguments...)...)
		cmd.Env, cmd.Stdout, cmd.Stderr = environment, os.Stdout, os.Stderr
		failed = errors.Join(failed, cmd.Run())
	}
	r.facts = append(r.facts, [2]string{"took", time.Since(began).Round(time.Second).String()}, [2]string{"load at the end", load()})
	if err := r.read(tallied, results); err != nil {
		return errors.Join(failed, err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	if err := errors.Join(r.render(file), file.Close()); err != nil {
		return err
	}
	fmt.Println(out)
	return failed
}

// read reads what the tests counted, and how they ended.
func (r *run) read(tallied, results string) error {
	file, err := os.Open(tallied)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if r.lines, err = tally.Read(file); err != nil {
		return err
	}
	text, err := os.ReadFile(results)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		res, err := parseResult(line)
		if err != nil {
			return err
		}
		r.results = append(r.results, res)
	}
	return nil
}

func parseResult(line string) (r result, err error) {
	fields := strings.Split(strings.TrimSpace(line), "\t")
	if len(fields) != 4 {
		return r, fmt.Errorf("%q is no line of results", line)
	}
	r.outcome, r.pkg, r.test = fields[0], fields[1], fields[2]
	_, err = fmt.Sscan(fields[3], &r.seconds)
	return r, err
}
