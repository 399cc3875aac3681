package file_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
)

// contention starts eight processes that lead in turns.
func contention(t *testing.T, acts string, env ...string) (all []process) {
	t.Helper()
	path := newPath(t)
	for range 8 {
		all = append(all, spawn(t, path, acts, "contend", env...))
	}
	return all
}

// overlaps are leaderships that begin before the last one ended, or not in the next
// term; with gaps, in no later one.
func overlaps(acts []act, gaps bool) (faults []string) {
	leads, last := "", leader.Term{}
	for _, a := range acts {
		switch {
		case a.what == "begin" && leads != "":
			faults = append(faults, fmt.Sprintf("%v begins while %s leads", a, leads))
		case a.what == "begin" && !last.IsZero() && !a.term.Follows(last) && !(gaps && a.term.Compare(last) > 0):
			faults = append(faults, fmt.Sprintf("%v begins after term %v", a, last))
		case a.what == "end" && leads != a.pid:
			faults = append(faults, fmt.Sprintf("%v comes after another began", a))
		}
		if leads = ""; a.what == "begin" {
			leads, last = a.pid, a.term
		}
	}
	return faults
}

func TestOfEightProcessesOneLeads(t *testing.T) {
	t.Parallel()
	acts := filepath.Join(t.TempDir(), "acts")
	for _, p := range contention(t, acts) {
		require.Zero(t, p.Wait())
	}
	seen := actsOf(t, acts)
	require.Len(t, seen, 8*2*leaderships)
	require.Empty(t, overlaps(seen, false))
}

// Each takes the lock from another that has it at two tries in a row.
func TestOfEightProcessesThatWaitForNoLockOneLeads(t *testing.T) {
	t.Parallel()
	acts := filepath.Join(t.TempDir(), "acts")
	for _, p := range contention(t, acts, childHasty+"=1") {
		require.Zero(t, p.Wait())
	}
	seen := actsOf(t, acts)
	require.Len(t, seen, 8*2*leaderships)
	require.Empty(t, overlaps(seen, true), "but a term is skipped if its attempt lost the lock")
}

func TestOfEightProcessesOneLeadsControl(t *testing.T) {
	t.Parallel()
	acts := filepath.Join(t.TempDir(), "acts")
	contention(t, acts, childOff+"=1") // each takes a lock of its own
	awaitAct(t, acts, "two leaders", func(act) bool { return len(overlaps(actsOf(t, acts), false)) > 0 })
	t.Log(overlaps(actsOf(t, acts), false)[0])
}
