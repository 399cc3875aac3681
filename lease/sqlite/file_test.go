package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// refused checks that a file cannot be opened, and why.
func refused(t *testing.T, path string, condition error) {
	t.Helper()
	_, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	require.ErrorIs(t, err, condition)
	var e *sqlite.FileError
	require.ErrorAs(t, err, &e)
	require.Contains(t, err.Error(), e.Path)
}

func TestASecondStoreOnAFileIsRefused(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sqlite.Config{})
	refused(t, path, sqlite.ErrInUse)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	refused(t, link, sqlite.ErrInUse)
	acquire(t, s, "job")
	require.NoError(t, s.Close())
	s = open(t, link, sqlite.Config{})
	_, err := s.Get(t.Context(), "job")
	require.NoError(t, err)
}

func TestAPathCanHaveAnyCharacters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?mode=ro#c%41&ü.db")
	require.NoError(t, open(t, path, sqlite.Config{}).Close())
	_, err := os.Stat(path)
	require.NoError(t, err)
}

func TestAFileThatCannotBeAStoreIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	refused(t, filepath.Join(dir, "missing", "leases.db"), sqlite.ErrMissing)
	refused(t, dir, sqlite.ErrReadOnly)

	garbage := filepath.Join(dir, "garbage")
	text := []byte("this is no database, and long enough to be taken for one: " + fmt.Sprint(make([]int, 2000)))
	require.NoError(t, os.WriteFile(garbage, text, 0o600))
	refused(t, garbage, sqlite.ErrCorrupt)
	kept, err := os.ReadFile(garbage)
	require.NoError(t, err)
	require.Equal(t, text, kept)

	foreign := filepath.Join(dir, "foreign")
	db := other(t, foreign)
	run(t, db, "CREATE TABLE t (a)")
	refused(t, foreign, sqlite.ErrForeign)
	var mode string
	require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
	require.Equal(t, "delete", mode, "a file of somebody else was changed")

	for _, version := range []int{0, 2} {
		another := newPath(t)
		require.NoError(t, open(t, another, sqlite.Config{}).Close())
		run(t, other(t, another), fmt.Sprint("PRAGMA user_version = ", version))
		refused(t, another, sqlite.ErrForeign)
	}

	_, err = sqlite.Open(t.Context(), newPath(t), sqlite.Config{Durability: 7})
	require.ErrorIs(t, err, lease.ErrInvalid)
}

func TestOnlyItsOwnerReadsTheFile(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	acquire(t, open(t, path, sqlite.Config{}), "job")
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		info, err := os.Stat(path + suffix)
		require.NoError(t, err)
		require.EqualValues(t, 0o600, info.Mode().Perm(), suffix)
	}
}

// filled makes a closed store of many pages.
func filled(t *testing.T) string {
	t.Helper()
	path := newPath(t)
	s := open(t, path, sqlite.Config{Durability: sqlite.Relaxed})
	for i := range 400 {
		acquire(t, s, fmt.Sprint("job/", i))
	}
	require.NoError(t, s.Close())
	return path
}

func TestADamagedFileIsRefused(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string, size int64) error{
		"cut to half":    func(path string, size int64) error { return os.Truncate(path, size/2/4096*4096) },
		"cut in a page":  func(path string, size int64) error { return os.Truncate(path, size-1000) },
		"cut to nothing": func(path string, _ int64) error { return os.Truncate(path, 0) },
		"removed":        func(path string, _ int64) error { return os.Remove(path) },
		"page of garbage": func(path string, size int64) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(fmt.Append(nil, make([]int, 2048))[:4096], size/2/4096*4096)
			return errors.Join(err, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filled(t)
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, damage(path, info.Size()))
			refused(t, path, sqlite.ErrCorrupt)
		})
	}
}

// A file that is damaged under a store stops it: what it remembers is not enough to
// go on.
func TestDamageFoundAtWorkStopsTheStore(t *testing.T) {
	t.Parallel()
	path := filled(t)
	s := open(t, path, sqlite.Config{CacheBytes: -1})
	info, err := os.Stat(path)
	require.NoError(t, err)
	garbage := fmt.Append(nil, make([]int, info.Size()))[4096:info.Size()]
	run(t, other(t, path), "UPDATE state SET floor = floor + 1") // so that SQLite reads pages again
	overwrite(t, path, garbage)
	for i := range 3 {
		_, err = s.Acquire(t.Context(), request(fmt.Sprint("new/", i)))
		require.ErrorIs(t, err, sqlite.ErrCorrupt)
	}
	require.EqualValues(t, 3, s.Stats().Failed)
}

func TestAnotherProgramThatHasTheFileLockedMakesItBusy(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sqlite.Config{BusyTimeout: -1})
	l := acquire(t, s, "job")
	backup := other(t, path)
	run(t, backup, "BEGIN IMMEDIATE")
	_, err := s.Acquire(t.Context(), request("next"))
	var busy *lease.BusyError
	require.ErrorAs(t, err, &busy)
	require.Positive(t, busy.Retry)
	require.ErrorIs(t, s.Release(t.Context(), l.Claim), lease.ErrBusy)
	require.EqualValues(t, 2, s.Stats().Busy)
	run(t, backup, "ROLLBACK")
	require.NoError(t, s.Release(t.Context(), l.Claim))
	require.EqualValues(t, 3, acquire(t, s, "next").Token, "after what was granted and released")
	require.EqualValues(t, 2, s.Stats().Busy)
}

func TestWhatAnotherProgramChangesIsSeen(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sqlite.Config{})
	l := acquire(t, s, "job")
	run(t, other(t, path), "UPDATE leases SET holder = 'somebody', token = 41, version = 41")
	require.ErrorIs(t, s.Release(t.Context(), l.Claim), lease.ErrStale)
	run(t, other(t, path), "UPDATE leases SET released_at = acquired_at")
	require.EqualValues(t, 42, acquire(t, s, "job").Token)
}

func TestATransactionThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), sqlite.Config{})
	first := acquire(t, s, "job")
	broken := errors.New("broken")
	require.ErrorIs(t, s.FailAfter(t.Context(), request("next"), broken), broken)
	require.EqualValues(t, 1, s.Stats().Failed)
	_, err := s.Get(t.Context(), "next")
	require.ErrorIs(t, err, lease.ErrNotFound)
	require.Equal(t, first.Token+1, acquire(t, s, "next").Token)
	require.NoError(t, s.Release(t.Context(), first.Claim))
}

// fill acquires until the disk is full, and returns what was acknowledged.
func fill(t *testing.T, s *sqlite.Store, prefix string) map[string]lease.Claim {
	t.Helper()
	granted := make(map[string]lease.Claim)
	failures := 0
	for i := 0; failures < 3; i++ {
		r := request(fmt.Sprint(prefix, i))
		r.Metadata = map[string]string{"padding": fmt.Sprint(make([]int, 500))}
		l, err := s.Acquire(t.Context(), r)
		if err == nil {
			granted[l.Name] = l.Claim
			failures = 0
			continue
		}
		failures++
		require.ErrorIs(t, err, sqlite.ErrFull)
		require.ErrorIs(t, err, lease.ErrBusy, "nothing was done, so it can be tried again")
		require.Zero(t, s.Stats().Busy, "a full disk is no contention")
		_, err = s.Get(t.Context(), r.Name)
		require.ErrorIs(t, err, lease.ErrNotFound, "what was refused was not granted")
	}
	return granted
}

func same(t *testing.T, s *sqlite.Store, granted map[string]lease.Claim) {
	t.Helper()
	require.NotEmpty(t, granted)
	n := 0
	for r, err := range s.List(t.Context(), lease.ListRequest{}) {
		require.NoError(t, err)
		require.Equal(t, granted[r.Name], r.Claim)
		n++
	}
	require.Equal(t, len(granted), n)
}

func TestAStoreAtItsLimitLosesNothingAndGoesOn(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, err := sqlite.OpenLimited(t.Context(), path, "100")
	require.NoError(t, err)
	granted := fill(t, s, "job/")
	same(t, s, granted)
	for name, claim := range granted { // needs no space
		require.NoError(t, s.Release(t.Context(), claim))
		require.Equal(t, claim.Token+1, acquire(t, s, name).Token)
		break
	}
	require.NoError(t, s.Close())
	acquire(t, open(t, path, sqlite.Config{}), "after")
}

func TestOpenObeysItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sqlite.Open(ctx, newPath(t), sqlite.Config{})
	require.ErrorIs(t, err, context.Canceled)
}

// overwrite changes a file from its second page on, in a process of its own: to close
// a descriptor of the file in this one would end SQLite's locks on it.
func overwrite(t *testing.T, path string, text []byte) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "garbage")
	require.NoError(t, os.WriteFile(source, text, 0o600))
	command(t, "dd", "if="+source, "of="+path, "bs=4096", "seek=1", "conv=notrunc")
}

func TestAStoreWhoseTablesAreGoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"leases", "state"} {
		path := filled(t)
		run(t, other(t, path), "DROP TABLE "+table)
		refused(t, path, sqlite.ErrCorrupt)
	}
}

func TestTablesThatGoAwayAtWorkStopTheStoreAndNotTheProgram(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"leases", "state"} {
		path := filled(t)
		s := open(t, path, sqlite.Config{})
		require.NoError(t, s.Health(t.Context()))
		run(t, other(t, path), "DROP TABLE "+table)
		for range 3 {
			_, err := s.Acquire(t.Context(), request("new"))
			require.ErrorIs(t, err, sqlite.ErrCorrupt)
			require.ErrorIs(t, err, lease.ErrBroken)
			_, err = s.Get(t.Context(), "job/1")
			require.ErrorIs(t, err, sqlite.ErrCorrupt)
			require.ErrorIs(t, s.Health(t.Context()), lease.ErrBroken)
		}
	}
}

// childTry tells a child to open the file and say whether it could.
const childTry = "PGLATCH_SQLITE_TRY"

// elsewhere opens a file in another process, which says what came of it.
func elsewhere(t *testing.T, path string) string {
	t.Helper()
	p := proctest.Start(t, proctest.Self(t, childTry+"="+path))
	require.Zero(t, p.Wait())
	return p.Stdout.String()
}

func TestAFileThatHasASecondNameHasOneStore(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sqlite.Config{})
	link := filepath.Join(t.TempDir(), "link.db")
	require.NoError(t, os.Link(path, link))
	require.Contains(t, elsewhere(t, link), sqlite.ErrInUse.Error())
	for range 3 {
		refused(t, link, sqlite.ErrInUse)
	}
	acquire(t, s, "job")
	require.NoError(t, s.Close())
	require.Equal(t, "opened\n", elsewhere(t, link), "the control: it can be opened now")
	require.NoError(t, open(t, link, sqlite.Config{}).Close())
}
