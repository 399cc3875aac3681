// Package service runs programs other than PostgreSQL for tests.
package service

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// account is the user for a program that refuses to run as root; nil is this process's own user.
func account(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		require.NoError(t, err)
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		require.NoError(t, err)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	require.Fail(t, "there is no user postgres or nobody")
	return nil
}

// Dir returns a temporary directory with files that belong to the programs' user: this process's
// user, or postgres or nobody if that is root.
func Dir(t *testing.T, files map[string][]byte) string {
	t.Helper()
	return ownedDir(t, account(t), files)
}

func ownedDir(t *testing.T, as *syscall.Credential, files map[string][]byte) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pglatch-service") //nolint:usetesting // the account cannot reach t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	own := func(path string) {
		if as != nil {
			require.NoError(t, os.Chown(path, int(as.Uid), int(as.Gid)))
		}
	}
	own(dir)
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		own(path)
	}
	return dir
}
