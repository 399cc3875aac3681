package activeserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/activeserver"
	"github.com/pglatch/pglatch/leader/driver"
	leaderpostgres "github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/namespace"
)

// start starts one server's part in the election. stop ends it.
func start(t *testing.T, c activeserver.Config) (e *activeserver.Election, stop func()) {
	t.Helper()
	e, err := activeserver.New(c)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(e.Stop)
	return e, e.Stop
}

// awaitActive waits for the changes of an election until the server at url is active.
func awaitActive(t *testing.T, e *activeserver.Election, url string) (self bool) {
	t.Helper()
	for {
		now, self, changed := e.Active()
		if now == url {
			return self
		}
		await.Receive(t, servetest.Bound, changed, "the active server changes")
	}
}

func TestOneServerIsActiveAndTheNextOneWhenItStops(t *testing.T) {
	t.Parallel()
	const one, two = "http://locks-1.example:8080", "https://locks-2.example"
	for name, config := range map[string]func(t *testing.T) (c1, c2 activeserver.Config){
		"by a lease": func(*testing.T) (c1, c2 activeserver.Config) {
			store := leasetest.NewStore()
			return activeserver.Config{URL: one, Store: store}, activeserver.Config{URL: two, Store: store}
		},
		"by a session lock": func(t *testing.T) (c1, c2 activeserver.Config) {
			t.Helper()
			dsn := pgtest.DSN(t)
			session := func() leader.Backend {
				b, err := leaderpostgres.New(leaderpostgres.Config{DSN: dsn, Key: activeserver.SessionKey, NoTerms: true})
				require.NoError(t, err)
				return b
			}
			return activeserver.Config{URL: one, Store: leasetest.NewStore(), Session: session()},
				activeserver.Config{URL: two, Store: leasetest.NewStore(), Session: session()} // the stores have no part in it
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c1, c2 := config(t)
			first, stop := start(t, c1)
			assert.True(t, awaitActive(t, first, one))
			second, _ := start(t, c2)
			assert.False(t, awaitActive(t, second, one))
			_, process, _, _ := first.ActiveProcess()
			assert.NotEmpty(t, process)
			_, same, _, _ := second.ActiveProcess()
			assert.Equal(t, process, same)
			stop()
			url, self, _ := first.Active()
			assert.NotEqual(t, one, url)
			assert.False(t, self)
			assert.True(t, awaitActive(t, second, two))
			_, other, _, _ := second.ActiveProcess()
			assert.NotEqual(t, process, other)
		})
	}
}

// A backend that no attempt can use, like a session behind a pooler in transaction mode.
type unusable struct{ leader.Backend }

func (unusable) TryAcquire(context.Context, string, time.Duration) (bool, error) {
	return false, driver.Permanent(assert.AnError)
}

func (unusable) Release(context.Context, string) error { return nil }

func TestTheLeaseElectsWhereNoSessionCan(t *testing.T) {
	t.Parallel()
	const one = "http://locks-1.example:8080"
	store := leasetest.NewStore()
	e, _ := start(t, activeserver.Config{URL: one, Store: store, Session: unusable{}})
	awaitActive(t, e, one)
	r, err := store.Get(t.Context(), leaseserver.ElectionLock)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(r.Holder, one+"#"), r.Holder)
}

// Servers of two versions take part in one election.
func TestTheKeysOfTheElectionNeverChange(t *testing.T) {
	t.Parallel()
	assert.Equal(t, namespace.Pair(-32767, 1).Tag(), activeserver.SessionKey.Tag())
	assert.NotEqual(t, namespace.Must(32767, "name").ID(1).Tag(), activeserver.SessionKey.Tag(), "that of the plain name 1, which users lock")
	assert.Equal(t, "pglatch::server::slot", leaseserver.ElectionLock)
}

func TestAConfigThatIsNotValidIsRefused(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	for field, configs := range map[string][]activeserver.Config{
		"URL": {
			{Store: store},
			{URL: "locks-1.example:8080", Store: store},
			{URL: "http://user@a", Store: store},
			{URL: "http://a/path", Store: store},
			{URL: "http://" + strings.Repeat("a", activeserver.MaxURL), Store: store},
		},
		"Store": {{URL: "http://a"}},
	} {
		for _, c := range configs {
			_, err := activeserver.New(c)
			var wrong *leader.ConfigError
			require.ErrorAs(t, err, &wrong, "%v", c)
			assert.Equal(t, field, wrong.Field)
		}
	}
}

// Waiters of three programs are served in one order, as those of three pglatch serve locks.
func TestServersOfGoProgramsServeTheirWaitersInOneOrder(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	var peers []servetest.Peer
	for range 3 {
		h := httptest.NewUnstartedServer(nil)
		election, err := activeserver.New(activeserver.Config{URL: "http://" + h.Listener.Addr().String(), Store: store})
		require.NoError(t, err)
		server, err := leaseserver.New(leaseserver.Config{Store: store, PollInterval: -1, Peers: leaseserver.Peers{Election: election}})
		require.NoError(t, err)
		h.Config.Handler = server.Handler()
		server.Configure(h.Config)
		h.Start()
		t.Cleanup(h.Close)
		ctx, cancel := context.WithCancel(t.Context())
		monitored := make(chan struct{})
		go func() { defer close(monitored); server.Monitor(ctx) }()
		t.Cleanup(func() { cancel(); <-monitored })
		require.NoError(t, election.Start(t.Context()))
		t.Cleanup(election.Stop)
		p := servetest.Peer{Server: server, HTTP: h, Client: servetest.Client(t, h, leasehttp.ClientConfig{}), Stop: cancel}
		if len(peers) == 0 {
			servetest.AwaitMetric(t, server, "lock_server_active", 1)
		} else {
			servetest.AwaitMetric(t, server, "lock_server_forwards", 1)
		}
		peers = append(peers, p)
	}
	servetest.RequireOneOrder(t, peers)
}

func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := leasetest.NewStore() // a program opens lease/postgres or lease/etcd
	election, err := activeserver.New(activeserver.Config{URL: "http://127.0.0.1:8080", Store: store})
	if err != nil {
		panic(err)
	}
	server, err := leaseserver.New(leaseserver.Config{Store: store, Peers: leaseserver.Peers{Election: election}})
	if err != nil {
		panic(err)
	}
	if err := election.Start(ctx); err != nil {
		panic(err)
	}
	defer election.Stop()
	var _ http.Handler = server.Handler() // or server.ListenAndServe(ctx, "127.0.0.1:8080")

	for url, _, changed := election.Active(); ; url, _, changed = election.Active() {
		if url != "" {
			fmt.Println("active:", url)
			return
		}
		<-changed
	}
	// Output: active: http://127.0.0.1:8080
}

func TestMain(m *testing.M) { pgtest.Main(m) }
