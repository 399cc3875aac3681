package file_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/file"
)

// held is a record that another program could write; what says how it differs.
func held(what ...string) string {
	text := `{"holder":"other","renewTime":"2026-01-02T03:04:05.678Z","leaseDuration":"10s"}`
	return strings.NewReplacer(what...).Replace(text)
}

// damaged are files that are no record.
var damaged = map[string]string{
	"nothing":           "",
	"zeros":             strings.Repeat("\x00", 300),
	"null":              "null",
	"an empty object":   "{}",
	"a list":            "[]",
	"two objects":       held() + held(),
	"text behind":       held() + "x",
	"no holder":         held(`"holder":"other",`, ""),
	"a null holder":     held(`"other"`, "null"),
	"a number holds":    held(`"other"`, "5"),
	"bytes hold":        held("other", "\xff"),
	"no leaseDuration":  held(`,"leaseDuration":"10s"`, ""),
	"no renewTime":      held(`"renewTime":"2026-01-02T03:04:05.678Z",`, ""),
	"a wrong time":      held("2026-01-02", "yesterday"),
	"a number of time":  held(`"10s"`, "10"),
	"no unit":           held("10s", "10"),
	"a negative lease":  held("10s", "-10s"),
	"an endless lease":  held("10s", "2000h"),
	"a null lease":      held(`"10s"`, "null"),
	"a wrong term":      held("{", `{"term":"7",`),
	"a number as term":  held("{", `{"term":7,`),
	"the last term":     held("{", `{"term":"1.281474976710655",`),
	"a negative clock":  held("{", `{"clockTime":"-1s",`),
	"a wrong clock":     held("{", `{"clock":7,`),
	"a version below 0": held("{", `{"version":-1,`),
	"too much":          held("other", strings.Repeat("o", file.MaxRecord)),
}

func TestAFileThatIsNoRecordIsAnErrorThatChangesNothing(t *testing.T) {
	t.Parallel()
	for name, text := range damaged {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			a := file.NewBackend(path)
			lead(t, a, "a")
			good := content(t, path)
			put(t, path, text)
			b := file.NewBackend(path)
			ok, err := b.TryAcquire(within(t), "b", ttl)
			assert.False(t, ok)
			var corrupt *file.CorruptError
			require.ErrorAs(t, err, &corrupt)
			assert.Equal(t, path, corrupt.Path)
			assert.NotEmpty(t, corrupt.Reason)
			assert.Contains(t, corrupt.Remedy, "WithRepair")
			_, _, err = b.Leader(t.Context())
			require.ErrorAs(t, err, &corrupt)
			require.ErrorAs(t, b.Wait(within(t)), &corrupt)
			err = a.Renew(within(t), "a", ttl)
			require.ErrorAs(t, err, &corrupt)
			require.NotErrorIs(t, err, leader.ErrLost, "it may be mended in time")
			require.ErrorAs(t, a.Release(within(t), "a"), &corrupt)
			require.Equal(t, text, content(t, path), "nothing is overwritten")

			put(t, path, good)
			require.NoError(t, a.Renew(within(t), "a", ttl), "it was mended in time")
			require.False(t, attempt(t, b, "b"))
		})
	}
}

// The control: what the table differs from is a record.
func TestARecordOfAnotherProgramIsARecord(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	put(t, path, held("{", `{"its own":{"thing":[1]},`))
	b := file.NewBackend(path)
	require.False(t, attempt(t, b, "b"))
	holder, ok, err := b.Leader(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, leader.Holder{Identity: "other"}, holder)
	put(t, path, held("other", ""))
	lead(t, b, "b")
	require.Equal(t, term(1), b.Term())
	require.False(t, b.CleanStart(), "nobody said that it was released")
}

func TestARecordOfANewerVersionIsLeftAloneAlsoByRepair(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	newer := held("{", `{"version":2,`, `"10s"`, `{"seconds":10}`)
	put(t, path, newer)
	var s setting
	b := repairing(path, &s)
	for range 2 {
		_, err := b.TryAcquire(within(t), "b", ttl)
		var corrupt *file.CorruptError
		require.ErrorAs(t, err, &corrupt)
		require.Contains(t, corrupt.Reason, "version is 2")
		require.NotContains(t, corrupt.Remedy, "WithRepair")
		s.pass(time.Hour)
	}
	require.Equal(t, newer, content(t, path))
}

func TestWhatIsNoRegularFileIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	put(t, target, held("other", ""))
	require.NoError(t, os.Symlink(target, link))
	for _, path := range []string{dir, link} {
		_, err := file.NewBackend(path).WithRepair().TryAcquire(within(t), "b", ttl)
		var corrupt *file.CorruptError
		require.ErrorAs(t, err, &corrupt)
		require.Contains(t, corrupt.Reason, "no regular file")
	}
	require.Equal(t, held("other", ""), content(t, target))
}

func TestArgumentsThatNoRecordCanHoldAreRefused(t *testing.T) {
	t.Parallel()
	b := file.NewBackend(newPath(t))
	var invalid *leader.ConfigError
	for _, identity := range []string{"", "\xff", strings.Repeat("x", 1025)} {
		_, err := b.TryAcquire(t.Context(), identity, ttl)
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "Identity", invalid.Field)
	}
	for _, d := range []time.Duration{-1, 0, driver.MaxLeaseDuration + 1} {
		_, err := b.TryAcquire(t.Context(), "b", d)
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "LeaseDuration", invalid.Field)
	}
	_, err := file.NewBackend("").TryAcquire(t.Context(), "b", ttl)
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "path", invalid.Field)
	ok, err := b.TryAcquire(t.Context(), strings.Repeat("\x01", 1024), driver.MaxLeaseDuration)
	require.NoError(t, err, "the longest record")
	require.True(t, ok)
	require.NoError(t, b.Renew(t.Context(), strings.Repeat("\x01", 1024), 1))
}

func FuzzRecord(f *testing.F) {
	for _, text := range damaged {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "leader.json")
	b := file.NewBackend(path)
	lead(f, b, "b")
	f.Add([]byte(content(f, path)))
	require.NoError(f, b.Release(f.Context(), "b"))
	f.Add([]byte(content(f, path)))
	f.Add([]byte(held()))
	f.Add([]byte("1.42 15s\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if text, err := file.Decode(data); err == nil {
			again, err := file.Decode(text)
			require.NoError(t, err, "what is written can be read")
			require.Equal(t, string(text), string(again))
			for n := range min(len(text)-1, 1000) { // the last byte is a newline
				_, err := file.Decode(text[:n])
				require.Error(t, err, "cut off after %d bytes", n)
			}
		}
		if text, err := file.DecodeTermFile(data); err == nil {
			again, err := file.DecodeTermFile(text)
			require.NoError(t, err, "what is written can be read")
			require.Equal(t, string(text), string(again))
		}
	})
}

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
