package file_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

// frozen starts a process that is stopped in an attempt, with the lock, before that
// change of a file. thaw lets it go on and returns how its attempt ended.
func frozen(t *testing.T, path string, change int, env ...string) (p process, thaw func() act) {
	t.Helper()
	dir := t.TempDir()
	acts, goOn := filepath.Join(dir, "acts"), filepath.Join(dir, "go")
	p = spawn(t, path, acts, "freeze", append(env, fmt.Sprint(childFreeze, "=", change), childGo+"="+goOn)...)
	awaitAct(t, acts, "the lock", func(a act) bool { return a.what == "frozen" })
	await.Until(t, patience, func() bool {
		stat, err := os.ReadFile("/proc/" + p.pid + "/stat")
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	return p, func() act {
		t.Helper()
		require.NoError(t, os.WriteFile(goOn, nil, 0o600))
		p.Signal(syscall.SIGCONT)
		return awaitAct(t, acts, "the end of its attempt", func(a act) bool { return strings.HasPrefix(a.what, "won=") })
	}
}

// led makes an election in which somebody has led, and nobody does.
func led(t *testing.T) (path string) {
	t.Helper()
	path = newPath(t)
	a := file.NewBackend(path)
	lead(t, a, "a")
	require.NoError(t, a.Release(within(t), "a"))
	return path
}

func TestAProcessThatIsStoppedWithTheLockHoldsNobodyUpAndChangesNothingLater(t *testing.T) {
	t.Parallel()
	for _, change := range []int{1, 2} { // of the file of terms, of the record
		path := led(t)
		p, thaw := frozen(t, path, change)
		b := file.NewBackend(path)
		lead(t, b, "b")
		require.NoError(t, b.Renew(within(t), "b", ttl))
		after := content(t, path)
		assert.Equal(t, "won=false", thaw().what)
		assert.Equal(t, after, content(t, path))
		require.NoError(t, b.Renew(within(t), "b", ttl))
		require.Zero(t, p.Wait())
		require.Greater(t, b.Term().N, uint64(1))
	}
}

func TestAProcessThatIsStoppedWithTheLockHoldsNobodyUpControl(t *testing.T) {
	t.Parallel()
	path := led(t)
	p, thaw := frozen(t, path, 2, childOff+"=1") // its draft is kept
	b := file.NewBackend(path)
	lead(t, b, "b")
	thaw()
	require.ErrorIs(t, b.Renew(within(t), "b", ttl), leader.ErrLost, "a late change wins")
	require.Zero(t, p.Wait())
}

func TestAProcessThatIsKilledWithTheLockLeavesTheElectionAsItWas(t *testing.T) {
	t.Parallel()
	for _, change := range []int{1, 2} {
		path := led(t)
		p, _ := frozen(t, path, change)
		p.Kill()
		require.Equal(t, 128+9, p.Wait(), "it lived until then")
		b := file.NewBackend(path)
		lead(t, b, "b")
		require.True(t, b.CleanStart())
	}
}

// slow is an attempt that waits under the lock, before its last change, for go.
func slow(t *testing.T, path string) (waits <-chan struct{}, proceed chan<- struct{}, won <-chan bool) {
	t.Helper()
	b := file.NewBackend(path)
	waiting, goOn, outcome := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	b.BeforeRename(func(_, to string) {
		if to == path && waiting != nil {
			close(waiting)
			waiting = nil
			<-goOn
		}
	})
	ctx := within(t)
	seen := waiting
	go func() {
		ok, err := b.TryAcquire(ctx, "slow", ttl)
		assert.NoError(t, err)
		outcome <- ok
	}()
	return seen, goOn, outcome
}

func TestWhoFindsALockThatWasReplacedByAKilledProcessRemovesTheDrafts(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{true, false} { // false is the control
		path := led(t)
		waits, proceed, won := slow(t, path)
		<-waits
		require.NoError(t, file.NewBackend(path).ReplaceLock())
		require.NotEmpty(t, content(t, path+".lock"))
		if !fenced {
			require.NoError(t, os.Truncate(path+".lock", 0))
		}
		b := file.NewBackend(path)
		lead(t, b, "b")
		require.Empty(t, content(t, path+".lock"))
		close(proceed)
		require.Equal(t, !fenced, <-won)
		if err := b.Renew(within(t), "b", ttl); fenced {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, leader.ErrLost)
		}
	}
}

func TestWhoseLockWasReplacedBeforeItLookedBeginsAnew(t *testing.T) {
	t.Parallel()
	path := led(t)
	a, b := file.NewBackend(path), file.NewBackend(path)
	_, err := a.Lock(within(t)) // the attempt finds it locked
	require.NoError(t, err)
	require.NoError(t, b.ReplaceLock())
	lead(t, a, "a")
	require.False(t, attempt(t, b, "b"))
}

func TestADirectoryThatIsMissingIsAnError(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "missing")
	b := file.NewBackend(filepath.Join(dir, "leader.json"))
	_, err := b.TryAcquire(within(t), "b", ttl)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "create the directory")
	_, _, err = b.Leader(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, b.Wait(within(t)), fs.ErrNotExist)
	require.NoDirExists(t, dir)
	require.NoError(t, os.Mkdir(dir, 0o700))
	lead(t, b, "b")
}

// Root may write anywhere; TestAFileSystemThatTurnsReadOnly is for root.
func TestADirectoryWithoutWriteMode(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write it; TestAFileSystemThatTurnsReadOnly is for root")
	}
	path := newPath(t)
	b := file.NewBackend(path)
	lead(t, b, "b")
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o500))
	err := b.Renew(within(t), "b", ttl)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "a user who may write")
	require.NoError(t, os.Chmod(filepath.Dir(path), 0o700))
	require.NoError(t, b.Renew(within(t), "b", ttl))
}
