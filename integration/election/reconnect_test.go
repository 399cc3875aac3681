//go:build integration

package election

import (
	"context"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/services"
)

// A recorder is a service that notes what happens to it.
type recorder struct {
	mu    sync.Mutex
	notes []string
}

func (r *recorder) note(text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, text)
	return nil
}

func (r *recorder) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.notes)
}

func (r *recorder) Start(ctx context.Context) error {
	return r.note("start " + leader.TermOfContext(ctx).String())
}

func (r *recorder) Stop(context.Context) error { return r.note("stop") }

func TestALeaderThatIsBackWithinTheGraceRecoversAndItsWorkRunsAgain(t *testing.T) {
	t.Parallel()
	backend := postgres.Config{DSN: pgtest.DSN(t)}
	m := join(t, "a", backend, leader.Config{ReconnectGrace: patience}, nil)
	service := new(recorder)
	s, err := services.New(m.Elector, services.Config{Services: []services.Spec{{
		Name: "recorder", New: func(context.Context) (services.Service, error) { return service, nil },
	}}})
	require.NoError(t, err)
	running := make(chan error, 1)
	go func() { running <- s.Run(context.Background()) }()
	m.requireWorks(1)
	until(t, "the service starts", func() bool { return len(service.told()) == 1 })
	first := m.Context()

	terminate(t, backend.DSN)
	m.requireStory("acquired 1.1", "recovered 1.2")
	require.ErrorIs(t, context.Cause(first), leader.ErrLost)
	m.requireWorks(1, 2)
	until(t, "the service starts again", func() bool { return len(service.told()) == 3 })
	require.Equal(t, []string{"start 1.1", "stop", "start 1.2"}, service.told())

	require.NoError(t, m.Shutdown(t.Context()))
	require.NoError(t, receive(t, running, "the services' end"))
	m.requireStory("acquired 1.1", "recovered 1.2", "released 1.2")
	m.requireWorks(1, 2)
}

// The lines of a member can be broken, and be held so that it does not come back.
func TestALeaderThatComesBackAfterAnotherTermHasLost(t *testing.T) {
	t.Parallel()
	proxy, via, dsn := throughProxy(t, pgtest.DSN(t))
	a := join(t, "a", postgres.Config{DSN: via}, leader.Config{ReconnectGrace: patience}, nil)
	a.requireWorks(1)
	proxy.Set(faultproxy.Hold)
	proxy.Reset()
	until(t, "a reconnects", func() bool { return a.State() == leader.Reconnecting })

	b := join(t, "b", postgres.Config{DSN: dsn}, leader.Config{}, nil)
	b.requireStory("acquired 1.2")
	b.requireWorks(2) // a Run that begins after Shutdown would start b again
	require.NoError(t, b.Shutdown(t.Context()))
	a.requireStory("acquired 1.1")
	proxy.Set(faultproxy.Pass)
	a.requireStory("acquired 1.1", "lost 1.1", "acquired 1.3")
	a.requireWorks(1, 3)
}

func TestALeaderThatIsNotBackWithinTheGraceHasLostOnce(t *testing.T) {
	t.Parallel()
	proxy, via, _ := throughProxy(t, pgtest.DSN(t))
	a := join(t, "a", postgres.Config{DSN: via}, leader.Config{ReconnectGrace: ttl}, nil)
	a.requireStory("acquired 1.1")
	proxy.Set(faultproxy.Hold)
	proxy.Reset()
	a.requireStory("acquired 1.1", "lost 1.1")
	until(t, "a follows", func() bool { return a.State() == leader.Follower })
	proxy.Set(faultproxy.Pass)
	a.requireStory("acquired 1.1", "lost 1.1", "acquired 1.2")
}

// The lease is long: between its end for the leader and its end at the server is
// time enough for the leader to end it itself.
func TestALeaderThatWasCutOffEndsItsOwnOldSessionAndRecovers(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	proxy, via, dsn := throughProxy(t, server.DSN(""))
	direct, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	var healed atomic.Bool
	backend := postgres.Config{DSN: via, BeforeConnect: func(_ context.Context, cc *pgx.ConnConfig) error {
		if healed.Load() { // for new connections: the old one stays black
			cc.Host, cc.Port = direct.Host, direct.Port
		}
		return nil
	}}
	m := join(t, "a", backend, leader.Config{ReconnectGrace: patience, LeaseDuration: 3 * calm}, nil)
	m.requireStory("acquired 1.1")
	offset, err := server.LogOffset()
	require.NoError(t, err)

	proxy.Set(faultproxy.Hold)
	healed.Store(true)
	m.requireStory("acquired 1.1", "recovered 1.2")
	log, err := server.LogSince(offset)
	require.NoError(t, err)
	assert.Contains(t, log, "/a FATAL:  terminating connection due to administrator command")
	assert.NotContains(t, log, "idle-session timeout", "the server ended the old session, not its owner")
	m.requireWorks(1, 2)
}

func throughProxy(t *testing.T, dsn string) (proxy *faultproxy.Proxy, via, direct string) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	proxy, err = faultproxy.New(t.Context(), u.Host)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	via, err = proxy.URL(dsn)
	require.NoError(t, err)
	return proxy, via, dsn
}

// terminate ends the leader's session.
func terminate(t *testing.T, dsn string) {
	t.Helper()
	tag, err := pgtest.Connect(t, dsn).Exec(t.Context(), terminateSQL)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected(), "nobody leads")
}
