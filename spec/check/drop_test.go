package check_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/spec/check"
)

// recorded returns the check and the events of a run that an integration test wrote. Some of its events were left out.
func recorded(t *testing.T, name string) (check.Check, []trace.Event) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name+".jsonl"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	all, err := trace.Decode(file)
	require.NoError(t, err)
	c, run, err := check.Named(all)
	require.NoError(t, err)
	return c, run
}

// recordedRuns has one run of each check, and one of locks with readers and semaphores.
var recordedRuns = append(slices.Sorted(maps.Keys(check.Checks)), "shares")

func TestRecordedRunsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, name := range recordedRuns {
		c, run := recorded(t, name)
		require.NoError(t, c(run), name)
	}
}

// mayBeMissing says why a run without an event is legal too, by the kind of the event. For an event of another kind that is
// not the last of its process or key, the run must be refused.
var mayBeMissing = map[string]string{
	"commit":                "nobody must commit",
	"error":                 "it only excuses",
	"fault":                 "it only excuses",
	"verdict absent":        "nobody must look for it",
	"release":               "the lock was lost before its caller released it",
	"rests":                 "the work may go on, until the process works again or stops",
	"lease_acquire nothing": "nothing was done",
	"lease_renew nothing":   "nothing was done",
	"lease_release nothing": "nothing was done",
	"lease_acquire held":    "nobody must ask",
	"lease_acquire done":    "the lease expired unused, or was released and nothing else needed it",
	"lease_acquire unknown": "it need not have been carried out",
	"lease_renew done":      "nobody must renew",
	"lease_renew expired":   "nobody must renew",
	"lease_renew stale":     "nobody must renew",
	"lease_renew unknown":   "it need not have been carried out",
	"lease_release done":    "the lease expired before anybody asked, or nobody asked",
	"lease_release expired": "nobody must release",
	"lease_release stale":   "nobody must release",
	"lease_release unknown": "it need not have been carried out",
}

func kindOf(e trace.Event) string {
	switch {
	case e.Lease != nil:
		return string(e.Kind) + " " + string(e.Lease.Answer)
	case e.Kind == trace.Verdict:
		return string(e.Kind) + " " + e.To
	}
	return string(e.Kind)
}

// ending reports whether at most one later event of a run is of the same process, or for leases of the same key. A run may
// end at any event, and nothing later shows what is missing.
func ending(run []trace.Event, i int) bool {
	later := 0
	for _, e := range run[i+1:] {
		if next(run[i], e) {
			later++
		}
	}
	return later <= 1
}

// worth is how many variants of each recorded run are refused: without one event, and with two swapped.
var worth = map[string]struct{ without, swapped int }{
	"elections": {181, 170},
	"leases":    {30, 27},
	"locks":     {250, 203},
	"incident":  {29, 15},
	"shards":    {192, 32},
	"shares":    {123, 123},
	"turns":     {213, 128},
}

// A tally counts variants of a run by kind.
type tally struct{ tried, refused map[string]int }

func newTally() tally { return tally{make(map[string]int), make(map[string]int)} }

// total returns how many variants were refused.
func (y tally) total() (n int) {
	for _, refused := range y.refused {
		n += refused
	}
	return n
}

func (y tally) String() string {
	var all []string
	tried, refused := 0, 0
	for _, kind := range slices.Sorted(maps.Keys(y.tried)) {
		all = append(all, fmt.Sprintf("%s %d/%d", kind, y.refused[kind], y.tried[kind]))
		tried, refused = tried+y.tried[kind], refused+y.refused[kind]
	}
	return fmt.Sprintf("%d of %d refused: %s", refused, tried, strings.Join(all, ", "))
}

func TestARunWithoutOneEventIsRefused(t *testing.T) {
	t.Parallel()
	for _, name := range recordedRuns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, run := recorded(t, name)
			y := newTally()
			for i, e := range run {
				part, at := related(run, i)
				kind := kindOf(e)
				y.tried[kind]++
				if c(slices.Concat(part[:at], part[at+1:])) != nil {
					y.refused[kind]++
					continue
				}
				assert.True(t, legalWithout(part, at) || ending(run, i), "without event %d, %+v, the run is accepted", i, e)
			}
			t.Log(y)
			assert.Equal(t, worth[name].without, y.total(), "spec/README.md has this number")
		})
	}
}

// related returns the events of a run that one event has to do with, and its place there. Leases of other names have nothing to
// do with it.
func related(run []trace.Event, i int) (part []trace.Event, at int) {
	for j, e := range run {
		if i == j {
			at = len(part)
		}
		if run[i].Lease == nil || e.Key == run[i].Key {
			part = append(part, e)
		}
	}
	return part, at
}

// legalWithout reports whether a run may be legal without an event.
func legalWithout(run []trace.Event, i int) bool {
	e := run[i]
	used := func(o trace.Event) bool {
		return o.Lease != nil && o.Lease.ID == e.Lease.ID && o.Lease.Answer == trace.Done
	}
	same := func(o trace.Event) bool {
		return o.Lease != nil && o.Lease.Answer == trace.Unknown && o.Who == e.Who && o.Key == e.Key
	}
	if e.Kind == trace.LeaseAcquire && e.Lease.Answer == trace.Done && slices.ContainsFunc(run[i+1:], used) && !slices.ContainsFunc(run[:i], same) {
		return false // nobody renews or releases a lease that was not granted, perhaps by a call whose answer was lost
	}
	if e.Kind == trace.Release { // of a lock
		j := slices.IndexFunc(run[i+1:], func(o trace.Event) bool { return next(e, o) })
		return j >= 0 && run[i+1+j].Kind == trace.Lost
	}
	if e.Kind == trace.Turn { // a handler that failed
		return !slices.ContainsFunc(run, func(o trace.Event) bool { return o.Kind == trace.Commit && o.Key == e.Key && o.Term == e.Term })
	}
	return mayBeMissing[kindOf(e)] != ""
}

// swapped returns a run in which two events have changed their places, and so their times.
func swapped(run []trace.Event, i, j int) []trace.Event {
	s := slices.Clone(run)
	s[i], s[j] = s[j], s[i]
	for at, from := range map[int]int{i: i, j: j} {
		length := s[at].Boot - s[at].Asked
		s[at].Boot, s[at].Wall, s[at].Seq = run[from].Boot, run[from].Wall, run[from].Seq
		if s[at].Asked != 0 {
			s[at].Asked = s[at].Boot - length
		}
	}
	return s
}

func TestARunWithTwoSwappedEventsIsRefused(t *testing.T) {
	t.Parallel()
	for _, name := range recordedRuns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, run := recorded(t, name)
			y := newTally()
			for i, e := range run {
				j := slices.IndexFunc(run[i+1:], func(o trace.Event) bool { return next(e, o) })
				if j < 0 {
					continue
				}
				j += i + 1
				kind := kindOf(e) + "↔" + kindOf(run[j])
				y.tried[kind]++
				part, at := related(run, i)
				_, with := related(run, j)
				if c(swapped(part, at, with)) != nil {
					y.refused[kind]++
					continue
				}
				assert.True(t, maySwap(e, run[j]) || ending(run, i), "with events %d and %d swapped, %+v and %+v, the run is accepted", i, j, e, run[j])
			}
			t.Log(y)
			assert.Equal(t, worth[name].swapped, y.total(), "spec/README.md has this number")
		})
	}
}

// next reports whether o can be the event with which e is swapped: the next one of the same process, or on the same name.
func next(e, o trace.Event) bool {
	if e.Lease != nil {
		return o.Key == e.Key
	}
	if e.Who != "" && e.Kind != trace.Fault {
		return o.Process == e.Process && o.Who == e.Who // a caller of a Locker
	}
	return o.Process == e.Process && o.Key == e.Key // a node's events of two shards have nothing to do with each other
}

// maySwap reports whether two events may come in either order.
func maySwap(a, b trace.Event) bool {
	free := func(e trace.Event) bool {
		return mayBeMissing[kindOf(e)] != "" || e.Kind == trace.Works || e.Kind == trace.Rests // work begins and ends beside the elector's reports
	}
	if a.Kind == trace.Verdict && a.Text == b.Text && slices.Equal(a.Words, b.Words) {
		return true // the tools may say it in any order
	}
	if a.Kind == trace.Sent || a.Kind == trace.Turn && b.Kind == trace.Turn {
		return b.Kind != trace.Commit // it was sent before it was committed, that is all
	}
	return free(a) || free(b)
}

func TestMain(m *testing.M) { leak.Main(m) }
