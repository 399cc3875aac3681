package file_test

import (
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
