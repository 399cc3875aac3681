// Command report runs the histories, and writes a report in Markdown: operations, faults by kind, the windows that were
// measured, controls, versions, machine and load. It runs in the root of the tree, with a PostgreSQL:
//
//	go run ./internal/test/cmd/withpg -- go run ./internal/test/cmd/report [-short | -minutes 35] [-data dir] [-again] [-o report.md]
//
// With -minutes it repeats the short form, and begins no round that would probably end later. What the tests counted stays in the
// directory of -data, and -again only writes the report of it. It exits with 1 if a test failed. The report is written all the same.
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

// histories are the arguments of gotest: the tests that tally what they count. Only the long form has etcd.
var histories = [][]string{
	{
		"-tags", "integration", "-p", "1", "-timeout", "3h", "-count=1", "-run",
		"NeverTwoHolders|NeverTooMany|HoldersOverlap|NoUpdateIsLost|WithoutALock|WhateverHappens|WithoutGuards|WithoutContexts|TrustMembership|AHistoryOver|" +
			"NoAcknowledgedLeaseIsLost|TheLastLeasesAreLost|CommittedOnceInOrder|NobodyTakesIsFound|CommitAfterALaterTurn",
		"./integration/history", "./integration/election", "./integration/shards", "./integration/failover", "./integration/turns",
	},
	{"-C", "integration/thirdparty/etcd", "-timeout", "3h", "-count=1", "-run", "WhateverHappens|WithoutContexts|AHistoryOver", "."},
}

// An order is what somebody wants a report of.
type order struct {
	short   bool
	minutes int // > 0: the short form for so long
	data    string
	again   bool
	out     string
}

func main() {
	var o order
	flag.BoolVar(&o.short, "short", false, "the short form, which takes minutes")
	flag.IntVar(&o.minutes, "minutes", 0, "repeat the short form for so many minutes")
	flag.StringVar(&o.data, "data", filepath.Join("dist", "report"), "the directory of what the tests counted")
	flag.BoolVar(&o.again, "again", false, "run no tests, and write the report of the data that exist")
	flag.StringVar(&o.out, "o", filepath.Join("dist", "report.md"), "the file of the report")
	flag.Parse()
	if err := o.report(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "report: %v\n", err)
		os.Exit(1)
	}
}

func (o order) report(ctx context.Context) error {
	data, err := filepath.Abs(o.data)
	if err != nil {
		return err
	}
	var failed error
	if !o.again {
		if failed, err = o.run(ctx, data); err != nil {
			return err
		}
	}
	r, err := read(data)
	if err != nil {
		return errors.Join(failed, err)
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return err
	}
	file, err := os.Create(o.out)
	if err != nil {
		return err
	}
	if err := errors.Join(r.render(file), file.Close()); err != nil {
		return err
	}
	fmt.Println(o.out)
	return failed
}

// The files of the data.
const (
	factsFile   = "facts"
	tallyFile   = "tally"
	resultsFile = "results"
)

// run runs the tests, with the data in a directory that is empty before.
func (o order) run(ctx context.Context, data string) (failed, err error) {
	for _, name := range []string{factsFile, tallyFile, resultsFile} {
		if err := os.Remove(filepath.Join(data, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	facts, err := os.Create(filepath.Join(data, factsFile))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, facts.Close()) }()
	note := func(lines ...[2]string) {
		for _, l := range lines {
			_, problem := fmt.Fprintf(facts, "%s\t%s\n", l[0], l[1])
			err = errors.Join(err, problem)
		}
	}
	note(o.circumstances(ctx)...)
	environment := append(os.Environ(), tally.Variable+"="+filepath.Join(data, tallyFile), "PGLATCH_TEST_RESULTS="+filepath.Join(data, resultsFile))
	runs := histories[:1]
	if !o.short && o.minutes == 0 {
		runs, environment = histories, append(environment, soak.Variable+"=1")
	}
	began, rounds := time.Now(), 0
	for limit := time.Duration(o.minutes) * time.Minute; rounds == 0 || fits(time.Since(began), rounds, limit); rounds++ {
		for _, arguments := range runs {
			cmd := exec.CommandContext(ctx, "go", append([]string{"run", "./internal/test/cmd/gotest"}, arguments...)...)
			cmd.Env, cmd.Stdout, cmd.Stderr = environment, os.Stdout, os.Stderr
			failed = errors.Join(failed, cmd.Run())
		}
	}
	note([2]string{"rounds", fmt.Sprint(rounds)}, [2]string{"took", time.Since(began).Round(time.Second).String()}, [2]string{"load at the end", load()})
	return failed, err
}

// fits reports whether one more round probably ends within the limit.
func fits(elapsed time.Duration, rounds int, limit time.Duration) bool {
	return elapsed+elapsed/time.Duration(rounds) <= limit
}

// read reads what the tests counted, and how they ended.
func read(data string) (r run, err error) {
	text, err := os.ReadFile(filepath.Join(data, factsFile))
	if err != nil {
		return r, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		r.facts = append(r.facts, [2]string{name, value})
	}
	file, err := os.Open(filepath.Join(data, tallyFile))
	if err != nil {
		return r, err
	}
	defer func() { _ = file.Close() }()
	if r.lines, err = tally.Read(file); err != nil {
		return r, err
	}
	if text, err = os.ReadFile(filepath.Join(data, resultsFile)); err != nil {
		return r, err
	}
	for line := range strings.Lines(string(text)) {
		res, err := parseResult(line)
		if err != nil {
			return r, err
		}
		r.results = append(r.results, res)
	}
	return r, nil
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
