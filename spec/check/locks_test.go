package check_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/spec/check"
)

// The control of recorded faults: each loss has its cause among them.
func TestARunOfLocksWithoutItsFaultsIsRefused(t *testing.T) {
	t.Parallel()
	c, run := recorded(t, "locks")
	without := slices.DeleteFunc(slices.Clone(run), func(e trace.Event) bool { return e.Kind == trace.Fault })
	require.ErrorContains(t, c(without), "no fault hit its process")
}

// calls returns the events of calls, one nanosecond apart. Each is of another Locker: r and s are readers, and x, y and z use a
// semaphore with two slots.
func calls(kinds ...string) (run []trace.Event) {
	for i, kind := range kinds {
		process, kind := kind[:1], trace.Kind(kind[2:])
		e := trace.Event{Process: process, Boot: int64(i + 1), Kind: kind, Key: "agent/1", Who: "0"}
		if kind == trace.Fault {
			e = trace.Event{Process: "test", Boot: e.Boot, Kind: kind, Who: process, To: trace.Begins}
		}
		switch process {
		case "r", "s":
			e.Slots = trace.AnyNumber
		case "x", "y", "z":
			e.Slots, e.Key = 2, "semaphore/1"
		}
		run = append(run, e)
	}
	return run
}

func TestRunsOfLocksThatLookAlikeAreToldApart(t *testing.T) {
	t.Parallel()
	two := []string{"a ask", "a acquired", "b ask", "b acquired"}
	for name, c := range map[string]struct {
		run  []string
		says string // "" = the run is legal
	}{
		"one after the other":           {[]string{"a ask", "b ask", "a acquired", "a release", "b acquired", "a released", "b release", "b released"}, ""},
		"a loss that nobody noticed":    {append([]string{"a fault"}, append(two, "b release", "b released", "a lost")...), ""},
		"a loss that nobody reported":   {append([]string{"a fault"}, two...), ""},
		"two at once":                   {two, "is beside"},
		"two at once, and both release": {append(slices.Clone(two), "a release", "a released", "b release", "b released"), "is beside"},
		"a loss without a fault":        {append(slices.Clone(two), "a lost"), "no fault"},
		"a fault of another":            {append([]string{"b fault"}, append(two, "a lost")...), "no fault"},
		"a release that had lost":       {append([]string{"a fault"}, append(two, "a release", "a released")...), "is beside"},
		"a grant that nobody asked for": {[]string{"a acquired"}, "not asked"},
		"readers at once":               {[]string{"r ask", "s ask", "r acquired", "s acquired"}, ""},
		"a writer beside a reader":      {[]string{"r ask", "r acquired", "a ask", "a acquired"}, "is beside"},
		"a reader beside a writer":      {[]string{"a ask", "a acquired", "r ask", "r acquired"}, "is beside"},
		"two slots":                     {[]string{"x ask", "x acquired", "y ask", "y acquired"}, ""},
		"three of two slots":            {[]string{"x ask", "x acquired", "y ask", "y acquired", "z ask", "z acquired"}, "is beside"},
		"it stops and holds":            {[]string{"a ask", "a acquired", "a stopped"}, "has not reported"},
	} {
		err := check.Locks(calls(c.run...))
		if c.says == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, check.ErrRefused, name)
		require.ErrorContains(t, err, c.says, name)
	}
}
