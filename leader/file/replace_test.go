package file_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/file"
)

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
