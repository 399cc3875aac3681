package tabletrace

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	_ "unsafe" // for go:linkname

	"github.com/pglatch/pglatch/internal/locktable"
)

// A Trace is the events of one table.
type Trace struct {
	of      *locktable.Table
	mu      sync.Mutex
	records []Record
}

// Of records all events of a table, which must be new. It is for traces from which events are then removed.
func Of(t *locktable.Table) *Trace {
	trace := &Trace{of: t}
	record(t, func(r Record) {
		trace.mu.Lock()
		defer trace.mu.Unlock()
		trace.records = append(trace.records, r)
	})
	return trace
}

// Records returns the events so far.
func (t *Trace) Records() []Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.records)
}

// Replay replays the events on another table, except those with the given indexes. The error is nil if the trace is
// accepted, as that of a closed table with nothing left.
func (t *Trace) Replay(without ...int) error {
	p := newReplayer(t.of)
	for i, r := range t.Records() {
		if !slices.Contains(without, i) {
			p.feed(r)
		}
	}
	return p.quiet()
}

// mostEvents bounds the memory of a watch: after this many events of a table the rest is ignored.
const mostEvents = 200_000

// A watch replays tables while they are in use.
type watch struct {
	mu     sync.Mutex
	tables []*watched
}

type watched struct {
	mu sync.Mutex
	*replayer
	closed, over bool
}

// watchTables receives each new table before its first event. It is a variable of package locktable, which exports nothing
// that only tests use.
//
//go:linkname watchTables github.com/pglatch/pglatch/internal/locktable.watch
var watchTables func(*locktable.Table)

// Main runs the tests of a package while it watches all tables, and returns the exit code. Benchmarks run unwatched: they
// measure the tables.
func Main(run func() int) int {
	flag.Parse()
	if bench := flag.Lookup("test.bench"); bench != nil && bench.Value.String() != "" {
		return run()
	}
	var w watch
	watchTables = w.add
	locktable.New(locktable.Limits{})
	if len(w.tables) != 1 { // the variable has another name
		fmt.Fprintln(os.Stderr, "BUG: new lock tables are not watched")
		return 1
	}
	code := run()
	tables, events, err := w.err()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	fmt.Fprintf(os.Stderr, "the traces of %d lock tables are accepted: %d events\n", tables, events)
	return code
}

// add begins to watch a table, which must be new.
func (w *watch) add(t *locktable.Table) {
	one := &watched{replayer: newReplayer(t)}
	w.mu.Lock()
	w.tables = append(w.tables, one)
	w.mu.Unlock()
	record(t, func(r Record) {
		one.mu.Lock()
		defer one.mu.Unlock()
		one.over = one.over || one.events >= mostEvents || t.Broken() != nil // by a test
		if one.over {
			t.Record(nil) // the recorder's numbers would grow as long as the table lives
			one.replayer = &replayer{events: one.events, err: one.err}
			return
		}
		one.closed = one.closed || r.Kind == locktable.EventClose
		one.feed(r)
	})
}

// err returns the errors in the traces of all tables, and counts tables and events. A closed table must have nothing
// left.
func (w *watch) err() (tables, events int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.tables {
		one.mu.Lock()
		tables, events = tables+1, events+one.events
		wrong := one.err
		if one.closed && !one.over {
			wrong = one.quiet()
		}
		one.mu.Unlock()
		err = errors.Join(err, wrong)
	}
	return tables, events, err
}
