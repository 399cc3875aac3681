package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		fmt.Println(serveChild(path, os.Getenv(childServe)))
		os.Exit(1)
	}
	if path := os.Getenv(childTry); path != "" {
		if s, err := sqlite.Open(context.Background(), path, sqlite.Config{}); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("opened")
			_ = s.Close()
		}
		os.Exit(0)
	}
	leak.Main(m)
}

func newPath(tb testing.TB) string {
	tb.Helper()
	return filepath.Join(tb.TempDir(), "leases.db")
}

// open opens a store that is closed at the end of the test.
func open(tb testing.TB, path string, cfg sqlite.Config) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.Open(context.Background(), path, cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// other opens the file as another program does.
func other(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(tb, err)
	db.SetMaxOpenConns(1)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	return db
}

func run(tb testing.TB, db *sql.DB, query string, args ...any) {
	tb.Helper()
	_, err := db.ExecContext(tb.Context(), query, args...)
	require.NoError(tb, err)
}

func request(name string) lease.AcquireRequest {
	return lease.AcquireRequest{Name: name, Holder: "worker", TTL: time.Hour}
}

func acquire(tb testing.TB, s lease.Store, name string) lease.Lease {
	tb.Helper()
	l, err := s.Acquire(tb.Context(), request(name))
	require.NoError(tb, err)
	return l
}

func command(tb testing.TB, name string, args ...string) {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), name, args...).CombinedOutput()
	require.NoError(tb, err, "%s", out)
}
