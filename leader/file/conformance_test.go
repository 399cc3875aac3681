package file_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
