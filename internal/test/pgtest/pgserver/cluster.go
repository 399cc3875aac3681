package pgserver

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// makeDir creates the directory that contains data, run (the Unix socket) and server.log. It is in memory if
// possible. Otherwise it is in /tmp if the process is root, or if the socket's path would exceed the 103 bytes
// that every system accepts.
func makeDir(as account) (string, error) {
	base := os.TempDir()
	if as.drop || len(base) > 55 {
		base = "/tmp"
	}
	if memory := inMemory(); memory != "" {
		base = memory
	}
	dir, err := os.MkdirTemp(base, "pglatch-pg-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755) //nolint:gosec // the server's user must be able to traverse it
}

// makeData makes the data directory and configures it.
func (s *Server) makeData(ctx context.Context) error {
	err := s.fromTemplate(ctx)
	if err == nil && !s.opts.loopback() {
		err = appendFile(s.dataFile("pg_hba.conf"), "host all all all trust\nhost replication all all trust\n")
	}
	if err != nil {
		return err
	}
	return appendFile(s.dataFile("postgresql.conf"), confLines(s.opts.settings()))
}

func (s *Server) initdb(ctx context.Context) error {
	if err := s.as.mkdir(s.dataDir(), 0o700); err != nil {
		return err
	}
	out, err := s.as.command(ctx, filepath.Join(s.install.BinDir, "initdb"), "--no-sync", "--no-locale", "--encoding", "UTF8",
		"--username", "postgres", "--auth", "trust", "--pgdata", s.dataDir()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb of %s: %w\n%s", s.install.BinDir, err, out)
	}
	return nil
}

// confLines writes settings as postgresql.conf wants them.
func confLines(settings map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	return b.String()
}

func appendFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// freePort returns a port below the ranges that Linux and macOS use for outgoing connections, so that none of
// those takes it while the server is down.
func freePort(ctx context.Context, host string) (int, error) {
	var lastErr error
	for range 50 {
		port := 15000 + rand.IntN(17000)
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
		lastErr = err
	}
	return 0, fmt.Errorf("no free port on %s: %w", host, lastErr)
}
