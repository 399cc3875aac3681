package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/file"
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
		require.NoError(t, p.Wait())
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
		require.NoError(t, p.Wait())
	}
	seen := actsOf(t, acts)
	require.Len(t, seen, 8*2*leaderships)
	require.Empty(t, overlaps(seen, true), "but a term is skipped if its attempt lost the lock")
}

func TestOfEightProcessesOneLeadsControl(t *testing.T) {
	t.Parallel()
	acts := filepath.Join(t.TempDir(), "acts")
	contention(t, acts, childOff+"=1") // each takes a lock of its own
	await(t, acts, "two leaders", func(act) bool { return len(overlaps(actsOf(t, acts), false)) > 0 })
	t.Log(overlaps(actsOf(t, acts), false)[0])
}

// electLease is that of the elections between processes.
const electLease = time.Second

// An election is held by eight processes.
type election struct {
	*testing.T
	path, acts string
	env        []string
	nodes      map[string]process
	stops      map[string]int // of a node that was stopped and went on
	last       leader.Term
}

func newElection(t *testing.T, env ...string) *election {
	t.Helper()
	e := &election{T: t, path: newPath(t), acts: filepath.Join(t.TempDir(), "acts"), env: env, nodes: make(map[string]process), stops: make(map[string]int)}
	for range 8 {
		e.join()
	}
	return e
}

func (e *election) join() {
	p := spawn(e.T, e.path, e.acts, "elect", e.env...)
	e.nodes[p.pid] = p
}

// leader is the process that acted last.
func (e *election) leader() process {
	e.Helper()
	await(e.T, e.acts, "a leader", func(act) bool { return true })
	acts := actsOf(e.T, e.acts)
	last := acts[len(acts)-1]
	e.last = last.term
	return e.nodes[last.pid]
}

// succeeded waits for an act of a later term.
func (e *election) succeeded() {
	e.Helper()
	await(e.T, e.acts, "a leader after term "+e.last.String(), func(a act) bool { return a.term.Compare(e.last) > 0 })
}

// kill ends the leader, and another process takes its place.
func (e *election) kill() {
	e.Helper()
	p := e.leader()
	p.kill(e.T)
	delete(e.nodes, p.pid)
	e.join()
	e.succeeded()
}

// stop stops the leader until another has acted, and lets both go on for a while.
func (e *election) stop() {
	e.Helper()
	p := e.leader()
	p.signal(e.T, syscall.SIGSTOP)
	e.succeeded()
	e.stops[p.pid]++
	before := len(actsOf(e.T, e.acts))
	p.signal(e.T, syscall.SIGCONT)
	await(e.T, e.acts, "that work goes on", func(act) bool { return len(actsOf(e.T, e.acts)) > before+50 })
}

// faults are acts of a term after the first act of a later one. A process that was
// stopped, or had to wait for a busy machine, may have looked at its context just
// before: it has one for each stop, and one more.
func (e *election) faults() (faults []string) {
	last := leader.Term{}
	stale := make(map[string]int)
	for _, a := range actsOf(e.T, e.acts) {
		if a.term.Compare(last) >= 0 {
			last = a.term
			continue
		}
		if stale[a.pid]++; stale[a.pid] > e.stops[a.pid]+1 {
			faults = append(faults, fmt.Sprintf("%v after term %v", a, last))
		}
	}
	return faults
}

func TestTheLeaderIsKilledAndStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form of the tests")
	}
	t.Parallel()
	e := newElection(t)
	for range 3 {
		e.kill()
		e.stop()
	}
	require.Empty(t, e.faults())
	e.leader()
	t.Log("last term:", e.last)
	for _, p := range e.nodes {
		require.Eventually(t, func() bool {
			_, err := os.Stat(stoppable(e.acts, p.Process.Pid))
			return err == nil
		}, patience, time.Millisecond)
		p.signal(t, syscall.SIGTERM)
	}
	for _, p := range e.nodes {
		require.NoError(t, p.Wait())
	}
	_, ok, err := file.NewBackend(e.path).Leader(t.Context())
	require.NoError(t, err)
	require.False(t, ok)
}

func TestTheLeaderIsKilledAndStoppedControl(t *testing.T) {
	t.Parallel()
	e := newElection(t, childOff+"=1") // work does not look at its context
	e.stop()
	await(t, e.acts, "work after the end of its term", func(act) bool { return len(e.faults()) > 0 })
}
