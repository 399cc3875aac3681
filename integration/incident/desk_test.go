//go:build integration

package incident

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/monitor"
)

// The tools that name a fault.
const (
	byPage    = "page"
	byMetric  = "metric"
	byCommand = "command"
)

// A fault is a row of the drill. A verdict names it, or words of the page, a metric and a command.
type fault struct {
	name    string
	in      string        // the database; "" = fleet
	begin   func() func() // returns what ends the fault; nil = nothing does
	verdict string
	cause   string               // the verdict of which it is a consequence after a while; "" = none
	words   []string             // of the verdict, or of the page
	metric  string               // how its line begins, for a fault without a verdict; "" = it has no metric
	command []string             // for a fault without a verdict; nil = no command
	says    []string             // words of its output
	began   time.Time            // when the fault was complete
	named   map[string]time.Time // by tool
}

func (f *fault) database() string {
	if f.in == "" {
		return "fleet"
	}
	return f.in
}

// tools are those that can name the fault. The short form reads the page alone.
func (c *console) tools(f *fault) []string {
	all := []string{byPage}
	if c.short {
		return all
	}
	if f.verdict != "" || f.metric != "" {
		all = append(all, byMetric)
	}
	if f.verdict != "" || f.command != nil {
		all = append(all, byCommand)
	}
	return all
}

// A console is what somebody on call has open: the page and metrics of a monitor, and a terminal for each database.
type console struct {
	t         *testing.T
	program   string
	address   string
	short     bool // without terminals and commands
	env       []string
	databases map[string]string // their DSNs by name
	terminals map[string]*proctest.Process
	faults    []*fault
}

// openConsole starts the monitor and the terminals. Flags are more of the monitor's.
func openConsole(t *testing.T, databases map[string]string, flags ...string) *console {
	t.Helper()
	c := &console{
		t: t, program: filepath.Join(t.TempDir(), "pglatch"), short: soak.Size(t, true, false), databases: databases, terminals: make(map[string]*proctest.Process),
	}
	require.NoError(t, gobuild.Program(t.Context(), "../../cmd/pglatch", c.program))
	c.env = append(os.Environ(), "PGLATCH_NAMESPACES=order=1,job=2,tenant=3")
	args := append([]string{"serve", "monitor", "--listen", "127.0.0.1:0", "--record", "500ms", "--long-hold", "3s"}, flags...)
	for name, dsn := range databases {
		args = append(args, "--dsn", name+"="+dsn)
		if c.short {
			continue
		}
		c.terminals[name] = c.start("verdicts", "--watch", "-o", "jsonl", "--interval", "500ms", "--longer-than", "3s", "--dsn", dsn)
	}
	m := c.start(args...)
	c.address = "http://" + m.Match(&m.Stderr, `msg=serving.* address=(\S+)`)[1] + "/"
	return c
}

func (c *console) start(args ...string) *proctest.Process {
	c.t.Helper()
	cmd := proctest.Command(c.t, c.program, args...)
	cmd.Env = c.env
	return proctest.Start(c.t, cmd)
}

// output runs a command, and returns all that it says.
func (c *console) output(args ...string) string {
	c.t.Helper()
	p := c.start(args...)
	p.Wait()
	return p.Stdout.String() + p.Stderr.String()
}

func (c *console) get(path string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address+path, nil)
	require.NoError(c.t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(c.t, err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	require.NoError(c.t, err)
	return string(body)
}

// A look is what the tools say at one moment.
type look struct {
	verdicts, raised map[string][]monitor.Verdict // by database: those of the page, and of the command
	pages            map[string]string            // by database, and that of all
	metrics          string
	outputs          map[string]string // of the commands of faults without a verdict, by their words
}

// look reads the page, the metrics and the terminals. The commands of faults without verdicts run again.
func (c *console) look() look {
	c.t.Helper()
	l := look{
		verdicts: make(map[string][]monitor.Verdict), raised: make(map[string][]monitor.Verdict),
		pages: map[string]string{"": c.get("")}, outputs: make(map[string]string),
	}
	for name := range c.databases {
		l.verdicts[name] = c.verdicts(name)
		if !c.short || slices.ContainsFunc(c.faults, func(f *fault) bool { return f.in == name && f.verdict == "" && f.named[byPage].IsZero() }) {
			l.pages[name] = c.get(name+"/") + c.get(name+"/fleet")
		}
		if !c.short {
			l.raised[name] = c.raised(name)
		}
	}
	l.metrics = c.get("metrics")
	for _, f := range c.faults {
		if c.short {
			break
		}
		words := strings.Join(f.command, " ")
		if _, known := l.outputs[words]; f.command != nil && !known && f.named[byCommand].IsZero() {
			l.outputs[words] = c.output(f.command...)
		}
	}
	return l
}

// verdicts are those of a database's page.
func (c *console) verdicts(database string) []monitor.Verdict {
	c.t.Helper()
	var told struct {
		Verdicts []monitor.Verdict `json:"verdicts"`
	}
	_ = json.Unmarshal([]byte(c.get(database+"/verdicts")), &told) // while a database does not answer there are none
	return told.Verdicts
}

// raised are the verdicts that a terminal shows now.
func (c *console) raised(database string) []monitor.Verdict {
	c.t.Helper()
	now := make(map[string]monitor.Verdict)
	for line := range strings.Lines(c.terminals[database].Stdout.String()) {
		var change struct {
			Change  string          `json:"change"`
			Verdict monitor.Verdict `json:"verdict"`
		}
		if json.Unmarshal([]byte(line), &change) != nil {
			continue // half a line
		}
		id := change.Verdict.Name + "\x00" + change.Verdict.Key + "\x00" + change.Verdict.Subject
		if delete(now, id); change.Change == "raised" {
			now[id] = change.Verdict
		}
	}
	return slices.Collect(maps.Values(now))
}

// names reports whether a tool names a fault. In the short form, the page is its list of verdicts in JSON.
func (c *console) names(l look, f *fault, tool string, before int) bool {
	switch {
	case f.verdict != "" && tool == byPage:
		return f.among(l.verdicts[f.database()]) && (c.short || contains(l.pages[f.database()], f.verdict) || f.cause != "" && contains(l.pages[f.database()], f.cause))
	case f.verdict != "" && tool == byCommand:
		return f.among(l.raised[f.database()])
	case f.verdict != "":
		return total(l.metrics, f.verdict, f.database()) > before
	case tool == byPage:
		return contains(l.pages[f.in], f.words...)
	case tool == byCommand:
		return contains(l.outputs[strings.Join(f.command, " ")], f.says...)
	default:
		return strings.Contains(l.metrics, f.metric)
	}
}

// among reports whether one of the verdicts is that of the fault, or its cause.
func (f *fault) among(all []monitor.Verdict) bool {
	return slices.ContainsFunc(all, func(v monitor.Verdict) bool {
		return (v.Name == f.verdict || f.cause != "" && v.Name == f.cause) && contains(v.Key+v.Subject+v.Text+strings.Join(v.Evidence, "")+strings.Join(v.Who, ""), f.words...)
	})
}

// total is how many verdicts of a name the metrics have. Each lock without waiters is held for long in a drill: a note.
func total(metrics, verdict, database string) (n int) {
	for line := range strings.Lines(metrics) {
		note := verdict == "held-long" && strings.Contains(line, `severity="note"`)
		if strings.HasPrefix(line, `pglatch_verdict{name="`+verdict+`",`) && strings.Contains(line, `database="`+database+`"`) && !note {
			value, _ := strconv.Atoi(strings.TrimSpace(line[strings.LastIndex(line, " "):]))
			n += value
		}
	}
	return n
}

// drill checks that no tool names a fault before it begins, lets all begin, waits until each tool has named each, ends
// them, and waits until all tools are quiet again.
func (c *console) drill(faults ...*fault) {
	c.t.Helper()
	c.faults = faults
	for _, f := range faults {
		f.named = make(map[string]time.Time)
	}
	l := c.look()
	for _, f := range faults {
		for _, tool := range c.tools(f) {
			require.False(c.t, c.names(l, f, tool, 0), "control: the %s names %s before it begins", tool, f.name)
		}
	}
	var ends []func()
	mended := make(map[*fault]bool)
	for _, f := range faults {
		if end := f.begin(); end != nil {
			ends, mended[f] = append(ends, end), true
		}
		f.began = time.Now()
	}
	await.Until(c.t, patience, func() bool {
		l = c.look()
		before, complete := make(map[string]int), true
		for _, f := range faults {
			id := f.database() + "/" + f.verdict
			for _, tool := range c.tools(f) {
				if f.named[tool].IsZero() && c.names(l, f, tool, before[id]) {
					f.named[tool] = time.Now()
				}
				complete = complete && !f.named[tool].IsZero()
			}
			before[id]++
		}
		return complete
	}, func() string { return c.missing(l) })
	for _, f := range faults {
		c.t.Log(c.seconds(f))
	}
	for _, end := range ends {
		end()
	}
	quiet := func() (still string) {
		l = c.look()
		for f := range mended {
			for _, tool := range c.tools(f) {
				if tool != byMetric && c.names(l, f, tool, 0) {
					still += fmt.Sprintf("%s: %s\n", tool, f.name)
				}
			}
		}
		return still
	}
	await.Until(c.t, patience, func() bool { return quiet() == "" }, func() string { return "quiet again, still named: " + quiet() })
}

// seconds says when which tool named the fault.
func (c *console) seconds(f *fault) string {
	text := f.name
	for _, tool := range c.tools(f) {
		text += fmt.Sprintf(" | %s %.1f s", tool, f.named[tool].Sub(f.began).Seconds())
	}
	return text
}

// missing says which tools have not named which faults, and what they say.
func (c *console) missing(l look) string {
	text := ""
	for _, f := range c.faults {
		for _, tool := range c.tools(f) {
			if f.named[tool].IsZero() {
				text += fmt.Sprintf("%s does not name %s\n", tool, f.name)
			}
		}
	}
	for name, all := range l.verdicts {
		for _, v := range all {
			text += fmt.Sprintf("%s: %s %s %s: %s %q\n", name, v.Name, v.Key, v.Subject, v.Text, v.Evidence)
		}
	}
	for words, output := range l.outputs {
		text += fmt.Sprintf("%s: %s\n", words, output)
	}
	for name, page := range l.pages {
		text += fmt.Sprintf("the page of %s is without %q\n", name, slices.DeleteFunc(unsaid(c.faults, name), func(word string) bool { return strings.Contains(page, word) }))
	}
	return text + strings.Join(slices.DeleteFunc(strings.Split(l.metrics, "\n"), func(line string) bool { return strings.HasSuffix(line, " 0") || strings.HasPrefix(line, "#") }), "\n")
}

// unsaid are the words that no tool has said of a database's page.
func unsaid(faults []*fault, page string) (words []string) {
	for _, f := range faults {
		if f.verdict == "" && f.in == page && f.named[byPage].IsZero() {
			words = append(words, f.words...)
		}
	}
	return words
}
