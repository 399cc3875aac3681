// Package replay lets a test write its run, and replay it at the end against the models.
package replay

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/spec/check"
)

// A Run is what the processes of a test write.
type Run struct {
	// Dir is the directory for the processes' files.
	Dir string

	t      testing.TB
	kind   string
	parent *trace.Writer
}

// Start begins a run that is checked as one of check.Checks.
func Start(tb testing.TB, kind string) *Run {
	tb.Helper()
	require.Contains(tb, check.Checks, kind)
	r := &Run{Dir: tb.TempDir(), t: tb, kind: kind}
	var err error
	r.parent, err = trace.Open(r.Dir, "test")
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, r.parent.Close()) })
	return r
}

// Writer writes the events of the test's own process. A nil Run has a nil Writer.
func (r *Run) Writer() *trace.Writer {
	if r == nil {
		return nil
	}
	return r.parent
}

// Path is Dir; a nil Run has none.
func (r *Run) Path() string {
	if r == nil {
		return ""
	}
	return r.Dir
}

// Fault writes that a fault hits a process, or all if who is empty. The returned function writes its end.
func (r *Run) Fault(who, name string) (ends func()) {
	r.Writer().Emit(trace.Event{Kind: trace.Fault, Who: who, Text: name, To: trace.Begins})
	return func() { r.Writer().Emit(trace.Event{Kind: trace.Fault, Who: who, Text: name, To: trace.Ends}) }
}

// RequireLegal replays the run. If it is refused, the run and a picture of it are written to PGLATCH_ARTIFACTS, and the test
// fails. PGLATCH_KEEP_RUNS=1 keeps legal runs too. The run must have events of at least so many kinds.
func (r *Run) RequireLegal(kinds ...trace.Kind) {
	r.t.Helper()
	events := r.read()
	counts := make(map[trace.Kind]int)
	for _, e := range events {
		counts[e.Kind]++
	}
	for _, kind := range kinds {
		require.Positive(r.t, counts[kind], "the run has no %s", kind)
	}
	err := check.Checks[r.kind](events)
	if err != nil || os.Getenv("PGLATCH_KEEP_RUNS") != "" {
		r.save(events, err)
	}
	require.NoError(r.t, err)
	r.t.Logf("the run is legal: %d events, %v", len(events), counts)
}

// RequireRefused is the control: it replays a run that must be refused.
func (r *Run) RequireRefused() {
	r.t.Helper()
	err := r.Check()
	require.ErrorIs(r.t, err, check.ErrRefused)
	r.t.Log("control:", err)
}

// Check replays what has been written so far.
func (r *Run) Check() error {
	r.t.Helper()
	return check.Checks[r.kind](r.read())
}

func (r *Run) read() []trace.Event {
	r.t.Helper()
	events, err := trace.Read(r.Dir)
	require.NoError(r.t, err)
	return events
}

// save writes a run and its picture.
func (r *Run) save(events []trace.Event, refused error) {
	r.t.Helper()
	dir := cmp.Or(os.Getenv("PGLATCH_ARTIFACTS"), filepath.Join(os.TempDir(), "pglatch-runs"))
	require.NoError(r.t, os.MkdirAll(dir, 0o750))
	name := filepath.Join(dir, "run-"+strings.NewReplacer("/", "-", " ", "-").Replace(r.t.Name()))
	file, err := os.Create(name + ".jsonl")
	require.NoError(r.t, err)
	defer func() { _ = file.Close() }()
	require.NoError(r.t, trace.Encode(file, append([]trace.Event{{Kind: trace.Run, Key: r.kind}}, events...)))
	page, err := os.Create(name + ".html")
	require.NoError(r.t, err)
	defer func() { _ = page.Close() }()
	require.NoError(r.t, check.Draw(page, r.t.Name(), events, refused))
	r.t.Logf("the run: %s.jsonl, its picture: %s.html", name, name)
}
