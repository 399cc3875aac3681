package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// suffixes are of the files of a store that can be damaged.
var suffixes = []string{"", "-wal", "-shm"}

// files are what a process leaves that is killed, by suffix.
type files map[string][]byte

// image copies the files of a store at work. Another process does, for to close a
// descriptor of the file in this one would end SQLite's locks on it.
func image(t *testing.T, path string) files {
	t.Helper()
	dir := t.TempDir()
	all := make(files)
	for _, suffix := range append([]string{".lock"}, suffixes...) {
		copied := filepath.Join(dir, "copy"+suffix)
		command(t, "cp", path+suffix, copied)
		text, err := os.ReadFile(copied)
		require.NoError(t, err)
		all[suffix] = text
	}
	return all
}

func (f files) write(t *testing.T, path string) {
	t.Helper()
	for suffix, text := range f {
		require.NoError(t, os.WriteFile(path+suffix, text, 0o600))
	}
}

type opener func(context.Context, string, sqlite.Config) (*sqlite.Store, error)

// tokens are the greatest of each name that somebody was given.
type tokens map[string]uint64

// killed is a store that has worked, was closed, has worked again, and was killed; some of
// its leases are held.
func killed(t *testing.T, open opener) (files, tokens) {
	t.Helper()
	path, given := newPath(t), make(tokens)
	for session := range 2 {
		s, err := open(t.Context(), path, sqlite.Config{})
		require.NoError(t, err)
		for i := range 14 {
			l := acquire(t, s, fmt.Sprint("job/", (i+i/7)%8))
			given[l.Name] = l.Token
			if i < 12 || session == 0 {
				require.NoError(t, s.Release(t.Context(), l.Claim))
			}
		}
		if session == 1 {
			left := image(t, path)
			require.NoError(t, s.Close())
			return left, given
		}
		require.NoError(t, s.Close())
	}
	return nil, nil
}

// goesBack opens what is left and uses each name, and returns a token that does not rise.
// A refusal is as good as one that does: its condition says that the file is damaged.
func goesBack(t *testing.T, left files, given tokens, open opener) string {
	t.Helper()
	path := newPath(t)
	left.write(t, path)
	refusal := func(err error) {
		t.Helper()
		var e *sqlite.FileError
		require.ErrorAs(t, err, &e)
		require.True(t, errors.Is(e, sqlite.ErrCorrupt) || errors.Is(e, sqlite.ErrForeign) || errors.Is(e, sqlite.ErrReadOnly), "%v", err)
	}
	s, err := open(t.Context(), path, sqlite.Config{Durability: sqlite.Relaxed, CacheBytes: -1})
	if err != nil {
		refusal(err)
		return ""
	}
	defer func() { _ = s.Close() }()
	for name, last := range given {
		l, err := s.Acquire(t.Context(), request(name))
		if errors.Is(err, lease.ErrHeld) {
			r, err := s.Get(t.Context(), name)
			require.NoError(t, err)
			require.NoError(t, s.Release(t.Context(), r.Claim))
			l, err = s.Acquire(t.Context(), request(name))
			require.NoError(t, err)
		} else if err != nil {
			refusal(err)
			return ""
		}
		if l.Token <= last {
			return fmt.Sprintf("%s: token %d after %d", name, l.Token, last)
		}
	}
	return ""
}

// A damage is what befalls a file.
type damage struct {
	what string
	left files
}

func (f files) with(suffix string, text []byte) files {
	next := maps.Clone(f)
	if next[suffix] = text; text == nil {
		delete(next, suffix)
	}
	return next
}

// damages are each file removed and cut to nothing, the WAL cut at one in so many frames and
// within it, and bits that are turned over, of each file.
func damages(left files, bits, frames int) []damage {
	const head, frame = 32, 24 + 4096
	all := []damage{{"nothing", left}}
	for _, suffix := range suffixes {
		all = append(all, damage{"removed " + suffix, left.with(suffix, nil)}, damage{"empty " + suffix, left.with(suffix, []byte{})})
		for range bits {
			text := append([]byte(nil), left[suffix]...)
			at := rand.IntN(len(text))
			text[at] ^= 1 << rand.IntN(8)
			all = append(all, damage{fmt.Sprintf("a bit of %q at %d", suffix, at), left.with(suffix, text)})
		}
	}
	all = append(all, damage{"removed both", left.with("-wal", nil).with("-shm", nil)})
	for end := head + rand.IntN(frames)*frame; end < len(left["-wal"]); end += frames * frame {
		for _, cut := range []int{end, end + 1 + rand.IntN(frame-1)} {
			all = append(all, damage{fmt.Sprint("WAL cut at ", cut), left.with("-wal", left["-wal"][:cut])})
		}
	}
	return all
}

func TestWhateverFileIsLostCutOrDamagedTokensRiseOrItIsRefused(t *testing.T) {
	t.Parallel()
	left, given := killed(t, sqlite.Open)
	all := damages(left, soak.Size(t, 4, 12), soak.Size(t, 4, 1))
	for _, d := range all {
		require.Empty(t, goesBack(t, d.left, given, sqlite.Open), d.what)
	}
	t.Log(len(all), "damages")
}

// The control: without the reserve the same test finds tokens that go back.
func TestWithoutAnEraALostWALTakesTokensBack(t *testing.T) {
	t.Parallel()
	left, given := killed(t, sqlite.OpenWithoutEra)
	require.Empty(t, goesBack(t, left, given, sqlite.OpenWithoutEra), "nothing is damaged")
	require.NotEmpty(t, goesBack(t, left.with("-wal", nil), given, sqlite.OpenWithoutEra))
	require.NotEmpty(t, goesBack(t, left.with("-wal", left["-wal"][:len(left["-wal"])/2]), given, sqlite.OpenWithoutEra))
}

func TestAStoreThatWasClosedSkipsNoTokens(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	for want := range uint64(3) {
		s := open(t, path, sqlite.Config{})
		l := acquire(t, s, "job")
		require.Equal(t, 2*want+1, l.Token, "a release is a version too")
		require.NoError(t, s.Release(t.Context(), l.Claim))
		require.NoError(t, s.Close())
	}
}

// Rows are not what tokens depend on.
func TestTokensRiseOverARowThatIsGone(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sqlite.Config{})
	l := acquire(t, s, "job")
	run(t, other(t, path), "DELETE FROM leases")
	next := acquire(t, s, "job")
	require.Greater(t, next.Token, l.Token)
	require.NoError(t, s.Close())
	run(t, other(t, path), "DELETE FROM leases")
	require.Greater(t, acquire(t, open(t, path, sqlite.Config{}), "job").Token, next.Token)
}

func TestABitThatTurnedOverInARowIsFound(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sqlite.Config{})
	acquire(t, s, "job")
	require.NoError(t, s.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	l := []byte("worker")
	for i := range text {
		if string(text[i:min(i+len(l), len(text))]) == "worker" {
			text[i] ^= 4
		}
	}
	require.NoError(t, os.WriteFile(path, text, 0o600))
	s = open(t, path, sqlite.Config{})
	_, err = s.Get(t.Context(), "job")
	require.ErrorIs(t, err, sqlite.ErrCorrupt)
	_, err = s.Acquire(t.Context(), request("job"))
	require.ErrorIs(t, err, sqlite.ErrCorrupt)
}
