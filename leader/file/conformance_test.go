package file_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/file"
	"github.com/pglatch/pglatch/leader/leadertest"
)

func TestTheBackendConforms(t *testing.T) {
	t.Parallel()
	leadertest.Run(t, leadertest.Harness{
		TTL: time.Second,
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			path := newPath(t)
			return func() driver.Backend { return file.NewBackend(path) }
		},
		Mistakes: map[string]func(*testing.T) driver.Backend{
			"no directory": func(t *testing.T) driver.Backend {
				t.Helper()
				return file.NewBackend(filepath.Join(t.TempDir(), "missing", "leader.json"))
			},
			"a corrupt file": func(t *testing.T) driver.Backend { //nolint:thelper // it makes a backend
				path := newPath(t)
				require.NoError(t, os.WriteFile(path, []byte(`{"holder":`), 0o600))
				return file.NewBackend(path)
			},
			"no path": func(*testing.T) driver.Backend { return file.NewBackend("") },
		},
	})
}

// As between machines: no node can read the clock of another.
func TestTheBackendConformsWithoutACommonClock(t *testing.T) {
	t.Parallel()
	leadertest.Run(t, leadertest.Harness{
		TTL: time.Second,
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			path := newPath(t)
			return func() driver.Backend { return stranger(path) }
		},
	})
}

func TestAnElectorRunsOnTheBackend(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	newElector := func(identity string, callbacks leader.Callbacks) *leader.Elector {
		e, err := leader.New(leader.Config{Name: "test", Identity: identity, Backend: file.NewBackend(path), LeaseDuration: ttl, Callbacks: callbacks})
		require.NoError(t, err)
		return e
	}
	refused := make(chan struct{}, 1)
	first, second := newElector("first", leader.Callbacks{}), newElector("second", leader.Callbacks{OnAcquireFailed: func(error) {
		select {
		case refused <- struct{}{}:
		default:
		}
	}})
	require.NoError(t, first.Start(t.Context()))
	require.NoError(t, first.WaitForLeadership(t.Context()))
	require.NoError(t, second.Start(t.Context()))
	<-refused
	holder, ok, err := second.Leader(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "first", holder.Identity)
	start := time.Now()
	require.NoError(t, first.Shutdown(context.Background()))
	require.NoError(t, second.WaitForLeadership(t.Context()))
	t.Logf("hand-over in %v", time.Since(start))
	require.True(t, second.Term().Follows(leader.Term{Era: 1, N: 1}))
	require.NoError(t, second.Shutdown(context.Background()))
}
