package service

import (
	"context"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

// serve runs a proxy of PostgreSQL, with files in a directory of its own, until the end of the test. Arguments of the command
// that name a file become its path. It returns the connection string of a database
// behind the port, and the process, when the proxy answers there.
func serve(t *testing.T, port int, database string, command []string, files map[string][]byte) (dsn string, p *proctest.Process) {
	t.Helper()
	as := account(t)
	dir := ownedDir(t, as, files)
	args := slices.Clone(command[1:])
	for i, arg := range args {
		if _, ok := files[arg]; ok {
			args[i] = filepath.Join(dir, arg)
		}
	}
	cmd := proctest.Command(t, command[0], args...)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
	p = proctest.Start(t, cmd)
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}
	await.Until(t, await.Patience, func() bool {
		conn, err := pgx.Connect(t.Context(), u.String())
		return err == nil && conn.Close(context.WithoutCancel(t.Context())) == nil
	}, "%s does not answer", filepath.Base(command[0]))
	return u.String(), p
}

func text(lines []string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}
