//go:build integration

package environment

import (
	"cmp"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/leader/shards/driver"
	shards "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// openLeases returns a store on a database with its schema.
func openLeases(t *testing.T, dsn string) *postgres.Store {
	t.Helper()
	store, err := postgres.New(postgres.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func TestLockServersBehindAPoolerInSessionModeHearEachOther(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	require.NoError(t, openLeases(t, server.DSN("")).Migrate(t.Context()))
	pooled := service.PgBouncer(t, server, "pool_mode=session", "default_pool_size=40")
	a := servetest.NewPeer(t, openLeases(t, pooled), -1)
	b := servetest.NewPeer(t, openLeases(t, pooled), -1)
	servetest.AwaitMessages(t, a, b)
	servetest.AwaitMessages(t, b, a)
}

// What one client of the pooler listens to, another would get.
func TestLockServersBehindAPoolerThatSharesSessionsDoNotListenAndLook(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	require.NoError(t, openLeases(t, server.DSN("")).Migrate(t.Context()))
	pooled := service.PgBouncer(t, server, "pool_mode=transaction", "default_pool_size=10")
	err := openLeases(t, pooled).Listen(t.Context(), func() { t.Error("it listens") }, func(string) {})
	require.ErrorContains(t, err, "pool_mode=session")

	var log capture.Text
	var clients [2]servetest.Peer
	for i := range clients {
		clients[i] = servetest.NewPeerOf(t, leaseserver.Config{
			Store: openLeases(t, pooled), PollInterval: 50 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
	}
	await.Until(t, patience, func() bool { return strings.Count(log.String(), "changes_not_heard") == 2 })
	for i := range 4 {
		held, err := clients[i%2].Client.Acquire(t.Context(), servetest.Ask("job", "holder"))
		require.NoError(t, err)
		var wg sync.WaitGroup
		for _, p := range clients {
			wg.Go(func() {
				l, err := p.Client.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), servetest.Bound)
				if assert.NoError(t, err) {
					assert.NoError(t, p.Client.Release(t.Context(), l.Claim))
				}
			})
		}
		for _, p := range clients {
			servetest.AwaitWaiters(t, p.Server, 1)
		}
		require.NoError(t, clients[i%2].Client.Release(t.Context(), held.Claim))
		wg.Wait()
	}
}

// The session lock of a pooler's client would belong to nobody.
func TestLockServersBehindAPoolerThatSharesSessionsElectByALease(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	require.NoError(t, openLeases(t, server.DSN("")).Migrate(t.Context()))
	pooled := service.PgBouncer(t, server, "pool_mode=transaction", "default_pool_size=10")
	first, one := clitest.Serve(t, nil, "--store", pooled)
	first.Match(&first.Stderr, `msg=server_active`)
	second, two := clitest.Serve(t, nil, "--store", pooled)
	second.Match(&second.Stderr, `msg=server_forwards to=http://`+one)
	assert.Contains(t, second.Stderr.String(), "a lease in the store elects the active server")
	_, stderr, code := clitest.Run(t, nil, "lease", "acquire", "job", "--owner", "a", "--server", "http://"+two)
	require.Zero(t, code, stderr)
	first.Kill()
	second.Match(&second.Stderr, `msg=server_active`)
	_, stderr, code = clitest.Run(t, nil, "lease", "acquire", "pglatch::server::slot", "--owner", "a", "--server", "http://"+two)
	assert.NotZero(t, code, "no client can have the lease of the servers: %s", stderr)
}

// A pooledCommand is a command and its expected result behind a pooler.
type pooledCommand struct {
	line string // without the name of the program

	code int    // behind a pooler in session mode
	says string // on the standard output or error then

	orCode int // another that it may be

	// refused: behind a pooler that shares sessions, it ends with refusedCode and says what to do, or does as in
	// session mode if maybe is set: by chance an answer can come. Without it, it does as in session mode; but in
	// statement mode it may say that there are no transactions.
	refused, maybe bool
	refusedCode    int
	transacts      bool

	serves bool // it runs until it gets a signal
}

// pooledCommands are all commands that connect to PostgreSQL. @77 is held by a program that answers, @78 by a
// session that does not. @79 is led until the resignation, and free for a moment after it.
var pooledCommands = []pooledCommand{
	{line: "ask @77", says: "@77", refused: true, maybe: true, refusedCode: 69},
	{line: "dump @76", code: 77, says: "refuses it", refused: true, maybe: true, refusedCode: 69},
	{line: "doctor", says: "pooler that keeps sessions apart", refused: true, refusedCode: 70},
	{line: "leader resign @79 --to nobody", code: 64, says: "no candidate of that identity", refused: true, maybe: true, refusedCode: 69},
	{line: "leader resign @79", says: "@79", refused: true, maybe: true, refusedCode: 69},
	{line: "leader run @9 --create-table -- true", says: "work_began", refused: true, refusedCode: 69},
	{line: "leader status @9", code: 3, says: "nobody leads"},
	{line: "leader watch @9", says: "nobody leads", serves: true},
	{line: "load --target lease --store postgres --clients 4 --duration 3s --locks 3", says: "fenced writes"},
	{line: "ls", says: "@78"},
	{line: "migrate", says: "nothing was changed"},
	{line: "run @5 -- echo it ran", says: "it ran", refused: true, refusedCode: 69},
	{line: "serve locks --store postgres --listen 127.0.0.1:0", says: "msg=serving", serves: true},
	{line: "serve monitor --listen 127.0.0.1:0", says: "msg=serving", serves: true},
	{line: "shards ls g=7", orCode: 3, says: "n", transacts: true},
	{line: "shards pin g=7 s n", says: "pinned to n", transacts: true},
	{line: "shards drain g=7 n --force", says: "n of g", transacts: true},
	{line: "status @78", says: "@78 is held"},
	{line: "terminate 999999 --yes", code: 3, says: "there is no session 999999"},
	{line: "tree", says: "@78"},
	{line: "try @5", says: "acquired @5", refused: true, refusedCode: 69},
	{line: "watch", says: "@78", serves: true},
}

var modes = []string{"session", "transaction", "statement"}

// pooledServer has the tables and the holders of locks that the commands find.
func pooledServer(t *testing.T) *pgserver.Server {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{})
	at := clitest.At(server.DSN(""))
	_, stderr, code := clitest.Run(t, at, "migrate")
	require.Zero(t, code, stderr)
	require.NoError(t, openLeases(t, server.DSN("")).Migrate(t.Context()))
	group, err := shards.New(shards.Config{DSN: server.DSN(""), Namespace: namespace.Must(7, "g"), CreateTable: true})
	require.NoError(t, err)
	session, err := group.Open(t.Context(), driver.Member{Identity: "n", Weight: 100}, time.Hour) // nobody renews it
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, session.Close()) })
	_, err = session.Claim(t.Context(), []string{"s"})
	require.NoError(t, err)
	for _, key := range []string{"@76", "@77"} {
		p := clitest.Start(t, at, "run", key, "--on-ask", "term", "--", "sh", "-c", "echo up=1; exec sleep 300")
		p.Number("up")
	}
	clitest.Start(t, at, "leader", "run", "@79", "--allow-resign", "--", "sleep", "300")
	direct := pgtest.Connect(t, server.DSN(""))
	execute(t, direct, "SELECT pg_advisory_lock(78)")
	await := func(query string, n int) {
		await.Until(t, patience, func() bool {
			var got int
			return direct.QueryRow(t.Context(), query).Scan(&got) == nil && got >= n
		})
	}
	await("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pglatch answers: %' AND wait_event = 'ClientRead'", 3)
	await("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 79", 1)
	waiter := pgtest.Connect(t, server.DSN("")) // so that a tree has something to show
	clitest.WaitFor(t, server.DSN(""), waiter, "SELECT pg_advisory_lock(78)")
	return server
}

func (c pooledCommand) try(t *testing.T, dsn, mode string) {
	t.Helper()
	start := func() (p *clitest.Program, said func() string) {
		p = clitest.Start(t, clitest.At(dsn), strings.Fields(c.line)...)
		return p, func() string { return p.Stdout.String() + p.Stderr.String() }
	}
	p, said := start()
	refused := c.refused && mode != "session" || c.transacts && mode == "statement"
	if c.serves && !refused {
		await.Until(t, await.Soon, func() bool { return strings.Contains(said(), c.says) }, said)
		p.Signal(syscall.SIGTERM)
	}
	code := p.Wait()
	for again := 0; again < 5 && c.maybe && !refused && (code != c.code || !strings.Contains(said(), c.says)); again++ {
		p, said = start() // on a busy machine the answer may come too late
		code = p.Wait()
	}
	if refused && !(c.maybe && code == c.code) {
		assert.Equal(t, cmp.Or(c.refusedCode, 69), code, said())
		assert.Contains(t, said(), "pool_mode=session")
		return
	}
	assert.Contains(t, []int{c.code, cmp.Or(c.orCode, c.code)}, code, said())
	assert.Contains(t, said(), c.says)
	assert.NotContains(t, said(), "SQLSTATE")
	assert.NotContains(t, said(), "level=ERROR")
}

func TestACommandWorksBehindAPoolerOrSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			server := pooledServer(t)
			for _, c := range pooledCommands {
				t.Run(c.line, func(t *testing.T) { // a pooler for each: version 1.18 ends now and then when a command does
					c.try(t, service.PgBouncer(t, server, "pool_mode="+mode, "default_pool_size=30"), mode)
				})
			}
		})
	}
}

// untilIdle does something until the store is not busy: on a busy machine a server waits longer for its own locks than
// a lock server does.
func untilIdle(do func() error) (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = do(); !errors.Is(err, lease.ErrBusy) {
			break
		}
	}
	return err
}

// A lock server is under load behind a pooler: no operation fails, and a second server starts beside it.
func TestALockServerWorksUnderLoadBehindAPooler(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			server := pgtest.StartServer(t, pgserver.Options{})
			if mode == "statement" {
				store := openLeases(t, service.PgBouncer(t, server, "pool_mode=statement"))
				require.ErrorContains(t, store.Migrate(t.Context()), "pool_mode=session", "the schema is made in a transaction")
				require.NoError(t, openLeases(t, server.DSN("")).Migrate(t.Context()))
			}
			dsn := service.PgBouncer(t, server, "pool_mode="+mode, "default_pool_size=40")
			var wg sync.WaitGroup
			for range 2 {
				p, at := clitest.Serve(t, clitest.At(dsn), "--store", "postgres", "--max-conns", "4")
				client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://" + at}})
				require.NoError(t, err)
				for i := range 8 {
					wg.Go(func() {
						for range 15 {
							var l lease.Lease
							err := untilIdle(func() (err error) {
								l, err = client.Acquire(t.Context(), servetest.Ask(strings.Repeat("x", i+1)+at, "a"))
								return err
							})
							if assert.NoError(t, err) {
								assert.NoError(t, untilIdle(func() error { return client.Release(t.Context(), l.Claim) }))
							}
						}
					})
				}
				t.Cleanup(func() { assert.NotRegexp(t, "level=ERROR|SQLSTATE", p.Stderr.String()) })
			}
			wg.Wait()
		})
	}
}
