package main_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/gobuild"
)

func TestWithpg(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "withpg")
	require.NoError(t, gobuild.Program(t.Context(), ".", binary))
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = append(os.Environ(), "PGLATCH_TEST_DATABASE_URL=", "TEST_DATABASE_URL=")
		return cmd
	}

	t.Run("runs the command with a server and removes it", func(t *testing.T) {
		t.Parallel()
		cmd := command("--", "sh", "-c", "echo $PGLATCH_TEST_DATABASE_URL; read -r line; exit 7")
		stdin, stdout := pipes(t, cmd)
		require.NoError(t, cmd.Start())
		dsn := firstLine(t, stdout)
		require.NoError(t, ping(t, dsn))
		require.NoError(t, stdin.Close())
		require.Error(t, cmd.Wait())
		assert.Equal(t, 7, cmd.ProcessState.ExitCode())
		require.Error(t, ping(t, dsn))
	})
	t.Run("forwards signals and returns the command's exit code", func(t *testing.T) {
		t.Parallel()
		cmd := command("sh", "-c", "trap 'exit 9' TERM; echo $PGLATCH_TEST_DATABASE_URL; read -r line")
		_, stdout := pipes(t, cmd)
		require.NoError(t, cmd.Start())
		dsn := firstLine(t, stdout)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for err := error(nil); err == nil; {
			select {
			case err = <-ended:
				require.Error(t, err)
			case <-time.After(5 * time.Second): // a shell that is about to read can lose a signal
				_ = cmd.Process.Signal(syscall.SIGTERM)
			}
		}
		assert.Equal(t, 9, cmd.ProcessState.ExitCode())
		require.Error(t, ping(t, dsn))
	})
	t.Run("ends a server of which it was robbed by kill -9", func(t *testing.T) {
		t.Parallel()
		cmd := command("sh", "-c", "echo $PGLATCH_TEST_DATABASE_URL; read -r line")
		_, stdout := pipes(t, cmd)
		require.NoError(t, cmd.Start())
		dsn := firstLine(t, stdout)
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		await.Until(t, await.Patience, func() bool { return ping(t, dsn) != nil })
	})
	t.Run("a command killed by a signal gives 128 and the signal", func(t *testing.T) {
		t.Parallel()
		cmd := command("--", "sh", "-c", "kill -KILL $$")
		require.Error(t, cmd.Run())
		assert.Equal(t, 128+9, cmd.ProcessState.ExitCode())
	})
	t.Run("leaves a server of the environment alone", func(t *testing.T) {
		t.Parallel()
		cmd := command("--", "sh", "-c", "echo $PGLATCH_TEST_DATABASE_URL")
		cmd.Env = append(cmd.Env, "PGLATCH_TEST_DATABASE_URL=postgres://somewhere/x", "PGBIN=/nonexistent")
		out, err := cmd.Output()
		require.NoError(t, err)
		assert.Equal(t, "postgres://somewhere/x\n", string(out))
	})
	t.Run("says what it lacks", func(t *testing.T) {
		t.Parallel()
		for want, cmd := range map[string]*exec.Cmd{
			"usage: withpg -- command":    command("--"),
			"no-such-command":             command("--", "no-such-command"),
			"PGBIN is \"/nonexistent\": ": command("--", "true"),
		} {
			if strings.HasPrefix(want, "PGBIN") {
				cmd.Env = append(cmd.Env, "PGBIN=/nonexistent", "PGLATCH_PG_VERSION=")
			}
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			assert.Equal(t, 125, cmd.ProcessState.ExitCode())
			assert.Contains(t, string(out), want)
		}
	})
}

func pipes(t *testing.T, cmd *exec.Cmd) (io.Closer, io.Reader) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	return stdin, stdout
}

func firstLine(t *testing.T, r io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

func ping(t *testing.T, dsn string) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		return err
	}
	return conn.Close(t.Context())
}
