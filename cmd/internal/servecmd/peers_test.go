package servecmd_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// has reports whether a server's metrics have a line.
func has(t *testing.T, address, line string) bool {
	t.Helper()
	_, metrics := page(t, address, "/metrics")
	return strings.Contains(metrics, "\n"+line+"\n")
}

func awaitLine(t *testing.T, address, line string) {
	t.Helper()
	await.Until(t, await.Soon, func() bool { return has(t, address, line) }, "%s has no %s", address, line)
}

func TestServeLocksForwardsToTheServerThatWasFirstAndTakesOverWhenThatIsKilled(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	first, one := clitest.Serve(t, nil, "--store", dsn)
	awaitLine(t, one, "lock_server_active 1")
	_, two := clitest.Serve(t, nil, "--store", dsn)
	awaitLine(t, two, "lock_server_forwards 1")
	acquire := func(name string) {
		t.Helper()
		_, stderr, code := clitest.Run(t, nil, "lease", "acquire", name, "--owner", "a", "--ttl", "1h", "--server", "http://"+two)
		require.Zero(t, code, stderr)
	}
	acquire("job")
	assert.True(t, has(t, two, `lock_forwarded_total{result="answered"} 1`))
	first.Kill()
	awaitLine(t, two, "lock_server_active 1")
	acquire("other")
	_, three := clitest.Serve(t, nil, "--store", dsn)
	awaitLine(t, three, "lock_server_forwards 1")
}

func TestServersOfTwoDatabasesAreBothActive(t *testing.T) {
	t.Parallel()
	_, here := clitest.Serve(t, nil, "--store", pgtest.DSN(t))
	_, other := clitest.Serve(t, nil, "--store", pgtest.DSN(t))
	awaitLine(t, here, "lock_server_active 1")
	awaitLine(t, other, "lock_server_active 1")
}

func TestServeLocksRefusesFlagsOfPeersWhereThereAreNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600))
	dsn := pgtest.DSN(t)
	socket := filepath.Join(dir, "s")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"stores of several servers", []string{"--store", "sqlite:" + filepath.Join(dir, "locks.db"), "--advertise", "http://a:1"}},
		{"stores of several servers", []string{"--store", "sqlite:" + filepath.Join(dir, "locks.db"), "--peer-token-file", file}},
		{"use a scheme and a host", []string{"--store", dsn, "--advertise", "a:1"}},
		{"use a scheme and a host", []string{"--store", dsn, "--advertise", "http://u:p@a"}},
		{"58 at most", []string{"--store", dsn, "--advertise", "http://" + strings.Repeat("a", 60)}},
		{"--advertise", []string{"--store", dsn, "--listen", "unix:" + socket, "--peer-token-file", file}},
		{"--tls-client-ca", []string{"--store", dsn, "--peer-cert", "cn:server"}},
	} {
		_, stderr, code := clitest.Run(t, nil, append([]string{"serve", "locks", "--listen", "127.0.0.1:0"}, c.args...)...)
		assert.Equal(t, 64, code, "%v: %s", c.args, stderr)
		assert.Contains(t, stderr, c.want, "%v", c.args)
	}
}

// A client that identifies itself by a certificate is known to the active server by it, if the
// server that forwards proves by its own that it is one.
func TestServeLocksForwardsTheIdentityOfACertificateBetweenServersThatProveThemselves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		active, other, address string // the names of their certificates, and how the active one is addressed
		wanted                 string // the name that the other one wants
		forwards               bool
	}{
		"both names are right":             {"locks.example", "locks.example", "127.0.0.1", "", true},
		"another name forwards":            {"locks.example", "worker.example", "127.0.0.1", "", false},
		"the active one has a wrong name":  {"locks.example", "locks.example", "localhost", "", false},
		"its name is not that of its URL":  {"locks.example", "locks.example", "localhost", "locks.example", true},
		"a client's own name is no server": {"locks.example", "ops", "127.0.0.1", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := newAuthority(t)
			tokens := filepath.Join(ca.dir, "tokens")
			require.NoError(t, os.WriteFile(tokens, []byte("cert-cn:ops right=hold\n"), 0o600))
			dsn := pgtest.DSN(t)
			start := func(cert, host string) (*clitest.Program, string) {
				address := clitest.Reserve(t)
				args := append([]string{
					"serve", "locks", "--listen", address, "--store", dsn, "--tls-client-ca", ca.file, "--auth-token-file", tokens,
					"--advertise", "https://" + strings.Replace(address, "127.0.0.1", host, 1), "--peer-cert", "san:locks.example", "--peer-ca", ca.file, "--peer-tls-name", c.wanted,
				}, ca.client(t, cert, cert, time.Now().Add(time.Hour))...)
				p := clitest.Start(t, nil, args...)
				p.Match(&p.Stderr, `msg=serving.* address=(\S+)`)
				return p, address
			}
			active, _ := start(c.active, c.address)
			active.Match(&active.Stderr, `msg=server_active`)
			other, address := start(c.other, "127.0.0.1")
			if c.forwards {
				other.Match(&other.Stderr, `msg=server_forwards to=https`)
			} else {
				other.Match(&other.Stderr, `msg=server_unreachable`)
			}
			client := ca.client(t, "ops", "ops.example", time.Now().Add(time.Hour))
			args := append([]string{"lease", "acquire", "job", "--owner", "a", "--ttl", "1h", "--server", "https://" + address, "--tls-ca", ca.file}, client...)
			_, stderr, code := clitest.Run(t, nil, args...)
			require.Zero(t, code, stderr)
			assert.Equal(t, c.forwards, !strings.Contains(other.Stderr.String(), "server_unreachable"), other.Stderr.String())
		})
	}
}

// The active server has a certificate of an authority that the other one learns while it runs.
func TestServeLocksReadsTheAuthoritiesOfItsPeersAgain(t *testing.T) {
	t.Parallel()
	dsn, dir := pgtest.DSN(t), t.TempDir()
	ours, others := newAuthority(t), newAuthority(t)
	tokens, authorities := filepath.Join(dir, "tokens"), filepath.Join(dir, "ca.pem")
	require.NoError(t, os.WriteFile(tokens, []byte("0123456789abcdef\n"), 0o600))
	trust := func(file string) {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(authorities, content, 0o600))
	}
	start := func() *clitest.Program {
		address := clitest.Reserve(t)
		p := clitest.Start(t, nil, append([]string{
			"serve", "locks", "--listen", address, "--store", dsn, "--auth-token-file", tokens, "--advertise", "https://" + address, "--peer-ca", authorities,
		}, ours.client(t, "locks.example", "locks.example", time.Now().Add(time.Hour))...)...)
		p.Saying(&p.Stderr, "msg=serving")
		return p
	}
	trust(others.file)
	active := start()
	active.Saying(&active.Stderr, "msg=server_active")
	other := start()
	other.Saying(&other.Stderr, "msg=server_unreachable")
	trust(ours.file)
	other.Signal(syscall.SIGHUP)
	other.Saying(&other.Stderr, `msg="read again" what="authorities of peers"`)
	other.Saying(&other.Stderr, "msg=server_forwards to=https")

	require.NoError(t, os.WriteFile(authorities, []byte("broken"), 0o600))
	other.Signal(syscall.SIGHUP)
	other.Saying(&other.Stderr, `what="authorities of peers" error=`)
	assert.NotContains(t, other.Stderr.String(), "server_forwards to=nobody")
}

// docs/how-to/run-a-lock-server.md says how many connections a server uses: --max-conns, one to listen, one for the election.
func TestServeLocksUsesTwoConnectionsBesideItsPool(t *testing.T) {
	t.Parallel()
	const pool = 3
	dsn := pgtest.DSN(t)
	_, address := clitest.Serve(t, nil, "--store", dsn, "--max-conns", strconv.Itoa(pool))
	awaitLine(t, address, "lock_server_active 1")
	conn := pgtest.Connect(t, dsn)
	count := func() (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&n))
		return n
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for range 4 * pool {
		wg.Go(func() {
			for ctx.Err() == nil {
				page(t, address, "/v1/locks")
			}
		})
	}
	await.Until(t, await.Soon, func() bool { return count() == pool+2 }, func() string { return strconv.Itoa(count()) + " connections" })
	for range 100 {
		assert.LessOrEqual(t, count(), pool+2)
	}
}
