package lockcmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/monitor"
)

// severities are the severities of verdicts, the worst first.
var severities = []string{"critical", "warning", "note"}

// A judge shows what is wrong.
type judge struct {
	app        *program.App
	severity   string
	longerThan time.Duration
	watch      bool
	interval   time.Duration
	lasts      time.Duration
	exitCode   bool
}

// NewVerdicts returns the command verdicts.
func NewVerdicts(app *program.App) *cobra.Command {
	j := &judge{app: app}
	cmd := &cobra.Command{
		Use:   "verdicts",
		Short: "Show what is wrong: deadlocks, silent holders, elections without a leader",
		Long: `Watch for two seconds, and show what is wrong, the worst first: the problem, the key, the
evidence, and what to do. Each verdict has a section in docs/how-to/incidents.md or
docs/how-to/incidents-of-turns.md. Some verdicts compare with the past, which only
"serve monitor" and verdicts --watch know.

If the role may not read a table, there are no verdicts about it. Standard error says which
tables those are, and -o json has them as "problems".

With --watch there is a line for each verdict that is raised and each that has ended,
until SIGINT or SIGTERM, or for the time of --for; -o json and jsonl write lines of JSON.
A verdict that becomes the consequence of another one has not ended.
If the database stops answering, the command reports that and retries.

With --exit-code the exit code is 3 if a verdict was critical or a warning; a note does not
count. If there was none, but not all tables were read, the exit code is 77 if the role lacks a
right, and 69 if they did not answer. With --watch, the last look counts. So a job can check a
deployment: pglatch verdicts --watch --for 2m --exit-code.`,
		Example: `  pglatch verdicts
  pglatch verdicts --severity critical --exit-code && echo fine
  pglatch verdicts --watch -o jsonl | jq -r .verdict.text`,
		Args: cobra.NoArgs,
		RunE: j.run,
	}
	flags := cmd.Flags()
	flags.StringVar(&j.severity, "severity", "note", "only verdicts of this `severity` or worse: "+strings.Join(severities, ", "))
	program.Only(flags, "severity", severities...)
	flags.DurationVar(&j.longerThan, "longer-than", 0, "a lock held for longer than this gets a verdict (default 5m0s)")
	flags.BoolVar(&j.watch, "watch", false, "show each verdict when it is raised and when it has ended")
	flags.DurationVar(&j.interval, "interval", time.Second, "with --watch: time between two looks, at least 250ms")
	flags.DurationVar(&j.lasts, "for", 0, "with --watch: end after this time (default: until a signal)")
	flags.BoolVar(&j.exitCode, "exit-code", false, "exit with 3 if a verdict was critical or a warning, and with 69 or 77 if tables were not read")
	return cmd
}

func (j *judge) run(cmd *cobra.Command, _ []string) error {
	changed := cmd.Flags().Changed
	switch {
	case !j.watch && (changed("interval") || changed("for")):
		return program.UsageError("--interval and --for need --watch")
	case changed("for") && j.lasts <= 0:
		return program.Positive("for", j.lasts)
	}
	if err := cmp.Or(program.NotNegative("longer-than", j.longerThan, ""), checkInterval(j.interval)); err != nil {
		return err
	}
	if j.watch {
		return j.follow(cmd.Context())
	}
	v, err := lookup.Observed(cmd.Context(), j.app, j.longerThan)
	if err != nil {
		return err
	}
	v.TellHidden(j.app)
	lookup.TellUnread(j.app, v.Unread())
	shown := j.shown(v)
	if len(shown) == 0 && j.app.Format() == "text" && !v.Server.Standby {
		if len(v.Unread()) > 0 {
			j.app.Logger().Info("nothing is wrong in what was read")
		} else {
			j.app.Logger().Info("nothing is wrong")
		}
	}
	document := struct {
		Verdicts []monitor.Verdict `json:"verdicts"`
		Problems []string          `json:"problems,omitempty"` // why tables were not read
		Server   monitor.Server    `json:"server"`
	}{shown, v.Unread(), v.Server}
	return errors.Join(j.app.Print(program.Output{Document: document, Lines: program.Lines(shown), Text: func(w *bytes.Buffer) {
		for _, verdict := range shown {
			writeVerdict(j.app, w, verdict)
		}
	}}), cmp.Or(v.Primary(), j.code(troubled(shown), v.Unknown())))
}

// shown returns the verdicts of the requested severities; never nil.
func (j *judge) shown(v lookup.View) []monitor.Verdict {
	worst := slices.Index(severities, j.severity)
	shown := []monitor.Verdict{}
	for _, verdict := range v.Verdicts {
		if slices.Index(severities, verdict.Severity) <= worst {
			shown = append(shown, verdict)
		}
	}
	return shown
}

// troubled reports whether one of the verdicts is more than a note.
func troubled(verdicts []monitor.Verdict) bool {
	return slices.ContainsFunc(verdicts, func(v monitor.Verdict) bool { return v.Severity != "note" })
}

// code returns the error that --exit-code asks for. unknown says why there can be more verdicts; nil = there are none.
func (j *judge) code(raised bool, unknown error) error {
	switch {
	case !j.exitCode:
		return nil
	case raised:
		return &program.ExitError{Code: program.ExitFree}
	}
	return unknown
}

// errNoLook is why nothing is known yet.
var errNoLook = &program.ExitError{Code: program.ExitUnavailable, Err: errors.New("the command ended before its first look: whether anything is wrong is unknown")}

// A verdictChange is one line of verdicts --watch.
type verdictChange struct {
	At      time.Time       `json:"at"`     // when it was seen, by the server's clock
	Change  string          `json:"change"` // "raised" or "ended"
	Verdict monitor.Verdict `json:"verdict"`
}

// follow writes a line for each change. The first failure of the database is an error, and so is one at the end: the
// verdicts of that moment are not known.
func (j *judge) follow(ctx context.Context) error {
	looker, err := lookup.Open(j.app, j.app.Logger(), j.longerThan)
	if err != nil {
		return err
	}
	defer looker.Close()
	whole := ctx
	if j.lasts > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, j.lasts)
		defer end()
	}
	var before []monitor.Verdict
	var unread []string
	var failed error
	var unknown error = errNoLook
	raised := false
	err = program.Watch[lookup.View]{
		Interval: j.interval, Failed: func(err error) {
			failed = err
			notSeen(j.app)(err)
		},
		Look: func(ctx context.Context) (lookup.View, error) { return ofPrimary(looker.Judge(ctx)) },
		Show: func(v lookup.View) error {
			failed, unknown = nil, v.Unknown()
			if problems := v.Unread(); !slices.Equal(problems, unread) {
				unread = problems
				lookup.TellUnread(j.app, problems)
			}
			now := j.shown(v)
			raised = raised || troubled(now)
			changed, open := verdictChanges(v.Server.Now, before, now)
			for _, c := range changed {
				if err := j.write(c); err != nil {
					return err
				}
			}
			before = open
			return nil
		},
	}.Run(ctx)
	if whole.Err() != nil {
		failed = nil // the user ended it
	}
	return cmp.Or(err, j.code(raised, nil), failed, j.code(false, unknown))
}

func (j *judge) write(c verdictChange) error {
	return j.app.PrintChange(program.Output{Document: c, Text: func(w *bytes.Buffer) {
		at := c.At.Format(time.RFC3339)
		if c.Change == "raised" {
			fmt.Fprintf(w, "\n%s raised", at)
			writeVerdict(j.app, w, c.Verdict)
			return
		}
		fmt.Fprintf(w, "\n%s ended\n%s\n", at, program.Printable(title(c.Verdict)))
	}})
}

// verdictChanges returns the differences in now, the ends first, and the verdicts that were raised and have not ended.
// A verdict that became a consequence of another one has not ended.
func verdictChanges(at time.Time, before, now []monitor.Verdict) (all []verdictChange, open []monitor.Verdict) {
	among := func(all []monitor.Verdict, v monitor.Verdict) bool {
		return slices.ContainsFunc(all, func(o monitor.Verdict) bool {
			return o.Name == v.Name && o.Key == v.Key && o.Subject == v.Subject
		})
	}
	var folded []monitor.Verdict
	for _, v := range now {
		folded = append(folded, v.Folded...)
	}
	for _, v := range before {
		switch {
		case among(now, v):
		case among(folded, v):
			open = append(open, v)
		default:
			all = append(all, verdictChange{at, "ended", v})
		}
	}
	for _, v := range now {
		if !among(before, v) {
			all = append(all, verdictChange{at, "raised", v})
		}
	}
	return all, append(open, now...)
}

// title names a verdict in a line.
func title(v monitor.Verdict) string {
	if v.Key == "" {
		return v.Severity + " " + v.Name
	}
	return v.Severity + " " + v.Name + " " + v.Key
}

func writeVerdict(app *program.App, w *bytes.Buffer, v monitor.Verdict) {
	color := map[string]string{"critical": program.Red, "warning": program.Yellow}[v.Severity]
	fmt.Fprintf(w, "\n%s: %s\n", app.Paint(color, program.Printable(title(v))), program.Printable(v.Text))
	for _, evidence := range v.Evidence {
		fmt.Fprintf(w, "  %s\n", program.Printable(evidence))
	}
	for _, consequence := range v.Consequences {
		fmt.Fprintf(w, "  its consequence: %s\n", program.Printable(consequence))
	}
	fmt.Fprintf(w, "  → %s (%s)\n", program.Printable(v.Advice), v.Doc)
}
