package file_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/file"
)

// torn are the ways in which a file system may lose the end of a file.
var torn = map[string]func(record string, offset int) string{
	"cut off": func(record string, offset int) string { return record[:offset] },
	"zeros": func(record string, offset int) string {
		return record[:offset] + strings.Repeat("\x00", len(record)-offset)
	},
}

func TestATornRecordIsAnErrorAndNeverASecondLeader(t *testing.T) {
	t.Parallel()
	for name, tear := range torn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			a, b := file.NewBackend(path), file.NewBackend(path)
			repairing := file.NewBackend(path).WithRepair()
			lead(t, a, "a")
			record := content(t, path)
			for offset := range len(record) - 1 { // the last byte is a newline
				text := tear(record, offset)
				put(t, path, text)
				var corrupt *file.CorruptError
				for _, who := range []*file.Backend{a, b, repairing} {
					ok, err := who.TryAcquire(within(t), "b", ttl)
					require.False(t, ok, "offset %d", offset)
					require.ErrorAs(t, err, &corrupt, "offset %d", offset)
				}
				require.Contains(t, corrupt.Remedy, "replaces it")
				require.Equal(t, text, content(t, path))
			}

			// The control: what is not torn is no error.
			put(t, path, record[:len(record)-1])
			require.False(t, attempt(t, b, "b"))
		})
	}
}

func TestATornRecordIsRepairedWhenItsLeaseHasEnded(t *testing.T) {
	t.Parallel()
	for name, tear := range torn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			var s setting
			b := repairing(path, &s)
			last := leader.Term{}
			for offset := 0; ; offset++ {
				s.pass(ttl)
				if _, err := b.TryAcquire(within(t), "b", ttl); err != nil { // the first look at it
					s.pass(ttl)
					lead(t, b, "b")
					require.False(t, b.CleanStart())
				}
				require.True(t, last.IsZero() || b.Term().Follows(last), "%v after %v", b.Term(), last)
				last = b.Term()
				require.NoError(t, b.Renew(within(t), "b", ttl))
				record := content(t, path)
				if offset >= len(record)-1 {
					break
				}
				require.NoError(t, b.Close())
				put(t, path, tear(record, offset))
			}
			kept, err := filepath.Glob(path + ".corrupt-*")
			require.NoError(t, err)
			require.Greater(t, len(kept), 100)
		})
	}
}

func TestRepairWaitsForTheLeaderThatMayBeBehindIt(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var s setting
	a, b, c := onClock(path, "shared", &s), repairing(path, &s), onClock(path, "shared", &s)
	lead(t, a, "a")
	put(t, path, "garbage")
	refused := func(who *file.Backend) *file.CorruptError {
		_, err := who.TryAcquire(within(t), "b", time.Second) // its own lease does not matter
		var corrupt *file.CorruptError
		require.ErrorAs(t, err, &corrupt)
		return corrupt
	}
	require.Contains(t, refused(b).Remedy, "an attempt in 1m0s replaces it")
	s.pass(ttl - 1)
	refused(b)
	put(t, path, "more garbage")
	s.pass(1)
	refused(b)
	s.pass(ttl - 1)
	refused(b)
	refused(c)
	_, _, err := b.Leader(t.Context())
	require.Error(t, err)
	s.pass(1)
	require.NoError(t, b.Wait(within(t)))
	lead(t, b, "b")
	require.Equal(t, term(2), b.Term())
	require.ErrorIs(t, a.Renew(within(t), "a", ttl), leader.ErrLost)

	kept, err := filepath.Glob(path + ".corrupt-*")
	require.NoError(t, err)
	require.Len(t, kept, 1)
	require.Equal(t, "more garbage", content(t, kept[0]))

	// The control: without repair it stays an error, for ever.
	put(t, path, "garbage")
	s.pass(100 * ttl)
	refused(c)
	s.pass(100 * ttl)
	require.Contains(t, refused(c).Remedy, "WithRepair")
}

func TestAMissingRecordDoesNotMakeASecondLeader(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var s setting
	a, b := onClock(path, "shared", &s), onClock(path, "shared", &s)
	lead(t, a, "a")
	require.NoError(t, os.Remove(path))
	require.False(t, attempt(t, b, "b"))
	_, ok, err := b.Leader(t.Context())
	require.NoError(t, err)
	require.False(t, ok)
	s.pass(ttl - 1)
	require.False(t, attempt(t, b, "b"))
	require.ErrorIs(t, a.Renew(within(t), "a", ttl), leader.ErrLost)
	s.pass(1)
	lead(t, b, "b")
	require.Equal(t, term(2), b.Term())
	require.False(t, b.CleanStart())

	// The control: it is the file of the term that says so.
	require.NoError(t, errors.Join(os.Remove(path), os.Remove(path+".term")))
	lead(t, a, "a")
	require.Equal(t, term(1), a.Term())
}

func TestWithoutRecordAndTermAnElectionDoesNotGuess(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var s setting
	b := repairing(path, &s)
	lead(t, b, "b")
	record := content(t, path)
	for _, garbage := range []string{"", "garbage", "1.5", "1.5 15s more", "1.5 -15s", "1.281474976710655 15s"} {
		put(t, path+".term", garbage)
		for _, damage := range []func(){func() { put(t, path, "garbage") }, func() { _ = os.Remove(path) }} {
			damage()
			for range 2 {
				_, err := b.TryAcquire(within(t), "b", ttl)
				var corrupt *file.CorruptError
				require.ErrorAs(t, err, &corrupt)
				require.Equal(t, path+".term", corrupt.Path)
				s.pass(100 * ttl)
			}
		}
	}
	put(t, path, record) // the control: one of the two is enough
	lead(t, b, "b")
	require.Equal(t, term(2), b.Term())
	require.Contains(t, content(t, path+".term"), "1.2 1m0s")
}

func TestTermsRiseWhenOneOfTheFilesIsOlder(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	b := file.NewBackend(path)
	lead(t, b, "b")
	first, firstTerm := content(t, path), content(t, path+".term")
	lead(t, b, "b")
	lead(t, b, "b")
	put(t, path, first)
	require.ErrorIs(t, b.Renew(within(t), "b", ttl), leader.ErrLost)
	put(t, path, strings.Replace(first, `"b"`, `""`, 1))
	lead(t, b, "b")
	require.Equal(t, term(4), b.Term())
	put(t, path+".term", firstTerm)
	lead(t, b, "b")
	require.Equal(t, term(5), b.Term())
}

func TestAMissingRecordIsWaitedForAsLongAsTheLongestRenewal(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var s setting
	a, b := onClock(path, "shared", &s), onClock(path, "shared", &s)
	lead(t, a, "a")
	require.NoError(t, a.Renew(within(t), "a", 10*ttl))
	require.Equal(t, "1.1 10m0s\n", content(t, path+".term"))
	require.NoError(t, a.Renew(within(t), "a", ttl))
	require.Equal(t, "1.1 10m0s\n", content(t, path+".term"), "what was trusted is not forgotten")
	require.NoError(t, os.Remove(path))
	require.False(t, attempt(t, b, "b"))
	s.pass(10*ttl - 1)
	require.False(t, attempt(t, b, "b"))
	s.pass(1)
	lead(t, b, "b")
	require.Equal(t, term(2), b.Term())
}
