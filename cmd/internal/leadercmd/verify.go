package leadercmd

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

const verifyHelp = `Read from the logs of all nodes when the work of each term ran, and report whether the work
of two terms of one election ever overlapped.

The logs are those of "leader run --log-format json", or of programs with the package
observe/slog; - is the standard input. Other lines are ignored. Each interval covers its
work: its begin is logged before the work starts, and its end after the work has returned.

The verdict is "apart" if no two intervals of different terms overlap, and "met" if two do.
It is "unknown" if the logs do not show it: a killed process logged no end, a clock was set,
or two intervals are closer than --clock-uncertainty. That flag is how far the clocks of two
machines may differ, which only you can know ("chronyc tracking" shows it). Times from one
running kernel are compared directly. Only the files given are judged: a node whose log is
missing is not.

Exit codes: 0 apart, 70 met or unknown.`

func newVerify(app *program.App) *cobra.Command {
	uncertainty := 10 * time.Millisecond
	cmd := &cobra.Command{
		Use:     "verify FILE...",
		Short:   "Prove from logs that work of two terms never overlapped",
		Long:    verifyHelp,
		Example: "  pglatch leader verify node-1.log node-2.log --clock-uncertainty 2ms",
		RunE: func(_ *cobra.Command, files []string) error {
			switch {
			case len(files) == 0:
				return program.UsageError("name the files to read, or - for the standard input")
			case uncertainty < 0:
				return program.UsageError("--clock-uncertainty is %v: use 0 or a positive duration", uncertainty)
			}
			elections, err := readElections(files)
			if err != nil {
				return err
			}
			return verify(app, elections, uncertainty)
		},
	}
	cmd.Flags().DurationVar(&uncertainty, "clock-uncertainty", uncertainty, "by how much the clocks of two machines may differ")
	return cmd
}

// readElections reads files, and returns their intervals by election.
func readElections(files []string) (map[string][]*interval, error) {
	elections := make(map[string][]*interval)
	for _, name := range files {
		all, err := readFile(name)
		if err != nil {
			return nil, program.UsageError("reading %s: %v", name, err)
		}
		for _, i := range all {
			elections[i.Election] = append(elections[i.Election], i)
		}
	}
	if len(elections) == 0 {
		return nil, program.UsageError(`the files have no records of work: write logs with "leader run --log-format json", or observe/slog's Work and slog.JSONHandler`)
	}
	return elections, nil
}

func readFile(name string) ([]*interval, error) {
	if name == "-" {
		return readIntervals(os.Stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readIntervals(io.Reader(f))
}

// verify prints the evidence for each election.
func verify(app *program.App, elections map[string][]*interval, uncertainty time.Duration) error {
	proved := true
	var all []*evidence
	for _, name := range slices.Sorted(maps.Keys(elections)) {
		e := examine(name, elections[name], uncertainty)
		proved = proved && e.Verdict == apart
		all = append(all, e)
	}
	out := program.Output{Document: all, Lines: program.Lines(all), Text: func(b *bytes.Buffer) {
		for _, e := range all {
			e.text(b)
		}
	}}
	if err := app.Print(out); err != nil || proved {
		return err
	}
	return &program.ExitError{Code: program.ExitInternal}
}

func (e *evidence) text(b *bytes.Buffer) {
	says := map[verdict]string{
		apart:   "work of two terms never ran at one time",
		met:     "WORK OF TWO TERMS RAN AT ONE TIME",
		unknown: "it is not proved that work of two terms never ran at one time",
	}
	fmt.Fprintf(b, "%s: %s (%d terms, %d intervals", program.Printable(e.Election), says[e.Verdict], e.Terms, e.Intervals)
	if e.Closest != nil && *e.Closest >= 0 {
		fmt.Fprintf(b, ", the closest %v apart", *e.Closest)
	}
	fmt.Fprintf(b, ", clocks of two machines taken to differ by %v at most)\n", e.Uncertainty)
	for _, f := range e.Findings {
		fmt.Fprintf(b, "  %s: %s\n    %s\n", f.Verdict, f.Reason, program.Printable(f.First.String()))
		if f.Second != nil {
			fmt.Fprintf(b, "    %s\n", program.Printable(f.Second.String()))
		}
	}
}
