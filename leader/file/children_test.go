package file_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/file"
)

// What the parent asks of its children.
const (
	childTask = "PGLATCH_FILE_CHILD"
	childPath = "PGLATCH_FILE_PATH"
	childActs = "PGLATCH_FILE_ACTS"   // the file of acts, in which each is a line
	childOff  = "PGLATCH_FILE_UNSAFE" // the protection that is under test is off

	childHasty  = "PGLATCH_FILE_HASTY"  // it waits for no lock
	childFreeze = "PGLATCH_FILE_FREEZE" // before which change of a file it is stopped
	childGo     = "PGLATCH_FILE_GO"     // the file without which it does not go on
)

// leaderships is how many a contender has.
const leaderships = 12

// child is the main function of a child.
func child(task string) int {
	// It ends with its parent, whose end of the pipe this is.
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	acts, err := os.OpenFile(os.Getenv(childActs), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fail(err)
	}
	act := func(what string, term leader.Term) {
		_, _ = acts.WriteString(fmt.Sprintln(what, os.Getpid(), term))
	}
	switch b := file.NewBackend(os.Getenv(childPath)); task {
	case "contend":
		return contend(ctx, b, act)
	case "freeze":
		return freeze(ctx, b, act)
	}
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "child:", err)
	return 1
}

// contend leads again and again, for a moment.
func contend(ctx context.Context, b *file.Backend, act func(string, leader.Term)) int {
	lease, unsafe := ttl, os.Getenv(childOff) != ""
	if unsafe {
		lease = 100 * time.Millisecond // for what is overwritten and never released
		b.LockOn(fmt.Sprintf("%s.lock-%d", os.Getenv(childPath), os.Getpid()))
	}
	b.SetPatience(patience)
	if os.Getenv(childHasty) != "" {
		b.SetPatience(0)
	}
	identity := strconv.Itoa(os.Getpid())
	for led := 0; (led < leaderships || unsafe) && ctx.Err() == nil; {
		ok, err := b.TryAcquire(ctx, identity, lease)
		if ok {
			led++
			act("begin", b.Term())
			err = b.Renew(ctx, identity, lease)
			act("end", b.Term())
			if err == nil {
				err = b.Release(ctx, identity)
			}
		}
		if err != nil && !unsafe {
			return fail(err)
		}
		if err == nil && !ok {
			wait, cancel := context.WithTimeout(ctx, time.Second)
			_ = b.Wait(wait)
			cancel()
		}
	}
	return 0
}

// freeze makes an attempt in which it is stopped while it has the lock.
func freeze(ctx context.Context, b *file.Backend, act func(string, leader.Term)) int {
	left, _ := strconv.Atoi(os.Getenv(childFreeze))
	b.BeforeRename(func(from, to string) {
		if left--; left != 0 {
			return
		}
		kept := filepath.Join(filepath.Dir(os.Getenv(childGo)), "kept")
		if err := os.Link(from, kept); err != nil {
			fail(err)
		}
		act("frozen", leader.Term{})
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		for {
			if _, err := os.Stat(os.Getenv(childGo)); err == nil {
				break
			}
			<-time.After(time.Millisecond)
		}
		if os.Getenv(childOff) != "" { // nobody can remove what it renames
			_ = os.Rename(kept, to)
		}
	})
	ok, err := b.TryAcquire(ctx, "frozen", ttl)
	if err != nil {
		return fail(err)
	}
	act(fmt.Sprint("won=", ok), b.Term())
	return 0
}

// A process is a child as its parent sees it.
type process struct {
	*proctest.Process
	pid string
}

// spawn starts a child.
func spawn(t *testing.T, path, acts, task string, env ...string) process {
	t.Helper()
	p := proctest.Start(t, proctest.Self(t, append(env, childTask+"="+task, childPath+"="+path, childActs+"="+acts)...))
	return process{p, strconv.Itoa(p.PID())}
}

// An act is a line of the file of acts, which has them in the order in which they
// happened.
type act struct {
	what, pid string
	term      leader.Term
}

func actsOf(t *testing.T, path string) []act {
	t.Helper()
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	data = data[:bytes.LastIndexByte(data, '\n')+1] // the end of a line that is being written may not be there yet
	var acts []act
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		require.Len(t, f, 3, "a line is one write: %q", line)
		term, err := driver.ParseTerm(f[2])
		require.NoError(t, err)
		acts = append(acts, act{f[0], f[1], term})
	}
	return acts
}

// awaitAct waits for an act.
func awaitAct(t *testing.T, path, what string, matches func(act) bool) (found act) {
	t.Helper()
	await.Until(t, patience, func() bool {
		acts := actsOf(t, path)
		i := slices.IndexFunc(acts, matches)
		if i >= 0 {
			found = acts[i]
		}
		return i >= 0
	}, "never seen: "+what)
	return found
}

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
