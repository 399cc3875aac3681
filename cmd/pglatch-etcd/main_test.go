package main_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestMain(m *testing.M) { clitest.MainOf(m, ".") }

func TestMisuse(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("s3cret\n"), 0o600))
	for store, want := range map[string]string{
		"etcd:":                               "is not of the form etcd://HOST:PORT",
		"etcd://a:2379,":                      "is not of the form",
		"etcd://a:2379/path":                  "is not of the form",
		"etcd://user:s3cret@a:2379":           "say ?user=NAME",
		"etcd://a:2379?pasword=s3cret":        `has a parameter "pasword"`,
		"etcd://a:2379?timeout=-1s":           "timeout is",
		"etcd://a:2379?ca=/no/such/file":      "no such file",
		"etcd://a:2379?ca=" + file:            "has no certificate in PEM",
		"etcd://a:2379?cert=" + file:          "cert and key",
		"etcd://a:2379?user=u":                "needs a password: set PGLATCH_ETCD_PASSWORD",
		"etcd://a:2379?password_file=" + file: "is for a user",
		"redis://s3cret":                      "--store is none of sqlite:FILE, postgres://…, etcd://",
	} {
		for _, command := range []string{"serve", "load"} {
			args := []string{command, "--store", store}
			if command == "serve" {
				args = []string{"serve", "locks", "--store", store}
			}
			_, stderr, code := clitest.Run(t, nil, args...)
			assert.Equal(t, 64, code, "%s: %s", store, stderr)
			assert.Contains(t, stderr, want, store)
			assert.Contains(t, stderr, "pglatch-etcd: ", store)
			assert.NotContains(t, stderr, "s3cret", store)
		}
	}
}

func TestAClusterThatCannotBeReachedIsUnavailable(t *testing.T) {
	t.Parallel()
	_, stderr, code := clitest.Run(t, []string{"PGLATCH_ETCD_PASSWORD=s3cret"}, "serve", "locks", "--store", "etcd://127.0.0.1:1?timeout=200ms&user=u", "-v")
	assert.Equal(t, 69, code, stderr)
	assert.NotContains(t, stderr, "s3cret")
}

func TestHelpShowsTheStore(t *testing.T) {
	t.Parallel()
	stdout, _, code := clitest.Run(t, nil, "serve", "locks", "--help")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "etcd://HOST:PORT")
	stdout, _, _ = clitest.Run(t, nil, "version")
	assert.Contains(t, stdout, "pglatch-etcd ")
}
