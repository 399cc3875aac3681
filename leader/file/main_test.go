package file_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/file"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(childTask); task != "" {
		os.Exit(child(task))
	}
	leak.Main(m)
}

// ttl is long: what ends in a test does not end by it.
const ttl = time.Minute

const patience = await.Soon

func newPath(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "leader.json")
}

var strangers atomic.Int64

// stranger is a backend whose clock nobody else has.
func stranger(path string) *file.Backend {
	b := file.NewBackend(path)
	hours := time.Duration(strangers.Add(1)) * time.Hour
	b.SetClock("of "+hours.String(), func() time.Duration { return boottime.Now() + hours })
	return b
}

// A setting is the time of a clock that a test moves.
type setting struct{ time atomic.Int64 }

func (s *setting) pass(d time.Duration) { s.time.Add(int64(d)) }

func (s *setting) now() time.Duration { return time.Duration(s.time.Load()) }

func onClock(path, id string, s *setting) *file.Backend {
	b := file.NewBackend(path)
	b.SetClock(id, s.now)
	return b
}

func repairing(path string, s *setting) *file.Backend {
	b := file.NewBackend(path).WithRepair()
	b.SetClock("shared", s.now)
	return b
}

// attempt makes one that must not fail.
func attempt(tb testing.TB, b *file.Backend, identity string) bool {
	tb.Helper()
	ok, err := b.TryAcquire(within(tb), identity, ttl)
	require.NoError(tb, err)
	return ok
}

func lead(tb testing.TB, b *file.Backend, identity string) {
	tb.Helper()
	require.True(tb, attempt(tb, b, identity), "%s acquires leadership that is free", identity)
}

func within(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	tb.Cleanup(cancel)
	return ctx
}

func content(tb testing.TB, path string) string {
	tb.Helper()
	data, err := os.ReadFile(path)
	require.NoError(tb, err)
	return string(data)
}

func put(tb testing.TB, path, text string) {
	tb.Helper()
	require.NoError(tb, os.WriteFile(path, []byte(text), 0o600))
}

func term(n uint64) leader.Term { return leader.Term{Era: 1, N: n} }
