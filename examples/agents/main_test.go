package agents

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A replica is the program, with its HTTP interface, in this process.
type replica struct {
	*App
	t   *testing.T
	url string
}

// start opens a replica of the program without its background workers.
func start(t *testing.T, db *dbtest.Database, config Config) *replica {
	t.Helper()
	config.DSN = db.DSN
	app, err := Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(app.Close)
	server := httptest.NewServer(app.Handler())
	t.Cleanup(server.Close)
	return &replica{app, t, server.URL}
}

// pair starts two replicas, a and b, with the agents of two sessions, x with number 1 and y with number 2.
func pair(t *testing.T, config Config) (db *dbtest.Database, a, b *replica) {
	t.Helper()
	db = dbtest.New(t)
	config.Replica = "a"
	a = start(t, db, config)
	config.Replica = "b"
	b = start(t, db, config)
	b.call("session-start", Hook{SessionID: "x"})
	b.call("session-start", Hook{SessionID: "y"})
	return db, a, b
}

func (r *replica) do(method, path string, body any, headers ...string) demokit.Answer {
	return demokit.Do(r.t.Context(), method, r.url+path, body, headers...)
}

// send calls a hook; the answer comes through the channel.
func (r *replica) send(hook string, body Hook) <-chan demokit.Answer {
	c := make(chan demokit.Answer, 1)
	go func() { c <- r.do(http.MethodPost, "/hook/"+hook, body) }()
	return c
}

// call calls a hook that must succeed.
func (r *replica) call(hook string, body Hook) HookReply {
	r.t.Helper()
	return done(r.t, r.send(hook, body))
}

// done waits for a hook that must succeed.
func done(t *testing.T, c <-chan demokit.Answer) (reply HookReply) {
	t.Helper()
	x := <-c
	require.NoError(t, x.Err)
	require.Equal(t, http.StatusOK, x.Status, x.Body)
	x.Decode(&reply)
	return reply
}

// holds waits until the replica holds a lock; waits until a request of it waits for one.
func (r *replica) holds() {
	await.Until(r.t, await.Patience, func() bool { return r.locker.Stats().Held == 1 }, "it has the lock")
}

func (r *replica) waits() {
	await.Until(r.t, await.Patience, func() bool { return r.locker.Stats().Waiting > 0 }, "it waits")
}

// hold takes an agent's lock until release is called.
func (r *replica) hold(agentID int32) (release func()) {
	r.t.Helper()
	lock, err := r.locker.Acquire(r.t.Context(), Agents.ID(int64(agentID)))
	require.NoError(r.t, err)
	return func() { assert.NoError(r.t, lock.Release()) }
}

// stall holds a row lock on the agent in a transaction, so that changes wait until release.
func (r *replica) stall(agentID int32) (release func()) {
	r.t.Helper()
	ctx := context.WithoutCancel(r.t.Context())
	tx, err := r.pool.Begin(ctx)
	require.NoError(r.t, err)
	_, err = tx.Exec(ctx, `SELECT FROM hooks.agents WHERE id = $1 FOR UPDATE`, agentID)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = tx.Rollback(ctx) })
	return func() { assert.NoError(r.t, tx.Rollback(ctx)) }
}

// cycle lets a background worker visit the agents once.
func (r *replica) cycle(name string) tally {
	r.t.Helper()
	i := slices.IndexFunc(r.workers, func(w *worker) bool { return w.name == name })
	t, err := r.workers[i].cycle(r.t.Context())
	require.NoError(r.t, err)
	return t
}

// said returns what a command's turns say.
func said(db *dbtest.Database) string {
	return dbtest.Ask[string](db, `SELECT coalesce(string_agg(text, ' ' ORDER BY id), '') FROM hooks.turns`)
}

// listen listens on a loopback address.
func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener
}

func TestReplicasThatStartAtOnceOnAnEmptyDatabaseAllStart(t *testing.T) {
	t.Parallel()
	db, opened := dbtest.New(t), make(chan error)
	for range 8 {
		go func() {
			app, err := Open(t.Context(), Config{DSN: db.DSN})
			if err == nil {
				app.Close()
			}
			opened <- err
		}()
	}
	for range 8 {
		require.NoError(t, <-opened)
	}
	assert.Equal(t, 3, dbtest.Ask[int](db, `SELECT count(*) FROM pg_tables WHERE schemaname = 'hooks'`))
}

func TestAnAppThatCannotBeOpenedSaysWhyAndLeavesNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for why, config := range map[string]Config{
		"DSN":                 {},
		"SessionTTL":          {DSN: dsn, SessionTTL: 1},
		"token 1 has 5 bytes": {DSN: dsn, Tokens: []string{"short"}},
		"unavailable":         {DSN: "postgres://127.0.0.1:1/x?connect_timeout=1"},
	} {
		_, err := Open(t.Context(), config)
		assert.ErrorContains(t, err, why)
	}
}

func TestServeEndsWithItsContextThoughABrowserIsConnected(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	app, err := Open(t.Context(), Config{DSN: db.DSN, WorkerInterval: time.Millisecond})
	require.NoError(t, err)
	defer app.Close()
	ctx, stop := context.WithCancel(t.Context())
	listener, ended := listen(t), make(chan error, 1)
	go func() { ended <- app.Serve(ctx, listener) }()
	address := "http://" + listener.Addr().String()
	events := make(chan demokit.Answer, 1)
	go func() { events <- demokit.Do(t.Context(), http.MethodGet, address+"/api/events", nil) }()
	await.Until(t, await.Patience, func() bool {
		app.broadcaster.mu.Lock()
		defer app.broadcaster.mu.Unlock()
		return len(app.broadcaster.clients) == 1
	}, "the browser is connected")
	require.Equal(t, http.StatusOK, demokit.Do(t.Context(), http.MethodPost, address+"/hook/session-start", Hook{SessionID: "s"}).Status)
	await.Until(t, await.Patience, func() bool {
		return dbtest.Ask[bool](db, `SELECT EXISTS (SELECT FROM hooks.agents WHERE context_checked_at IS NOT NULL)`)
	}, "the workers work")
	stop()
	require.NoError(t, <-ended)
	assert.Equal(t, `data: {"agent_id":1,"hook":"session-start"}`+"\n\n", (<-events).Body)
}

func TestScenario_PoolConfiguration(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	a := start(t, db, Config{Replica: "a"})
	work, locks := int(a.pool.Config().MaxConns), a.locker.Stats().MaxConns
	assert.Equal(t, 15, work)
	assert.Equal(t, 10, locks)
	for i := range locks {
		defer a.hold(int32(i + 1))()
	}
	_, err := a.locker.With(advisory.Options{Wait: 1}).Acquire(t.Context(), Agents.ID(99))
	require.ErrorIs(t, err, advisory.ErrPoolExhausted)
	for range work {
		conn, err := a.pool.Acquire(t.Context())
		require.NoError(t, err, "the locks take no connection from the work")
		defer conn.Release()
	}
	assert.Equal(t, 25, dbtest.Ask[int](db, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'agents/a%'`))
}

func TestScenario_QueryAdvisoryLocks(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t, Config{})
	release := a.hold(1)
	hook := b.send("stop", Hook{SessionID: "x"})
	var list struct {
		Total int
		Locks []map[string]any
	}
	await.Until(t, await.Patience, func() bool { // a waiter enters the server's queue in steps and may be missing between two
		list.Locks = nil
		a.do(http.MethodGet, "/api/advisory-locks", nil).Decode(&list)
		if list.Total != 2 || len(list.Locks) != 2 {
			return false
		}
		since, _ := list.Locks[0]["held_since"].(map[string]any) // if the program's answer comes late, this is the server's guess
		return since["source"] == "process"
	}, "a holder, which says since when, and a waiter")
	release()
	done(t, hook)

	for i, lock := range list.Locks {
		for _, field := range []string{"pid", "application_name", "state", "query_start", "namespace", "entity_id", "mode", "granted", "duration"} {
			assert.NotNil(t, lock[field], "%s of lock %d", field, i)
		}
		assert.Equal(t, []any{"agent", "1", "ExclusiveLock"}, []any{lock["namespace"], lock["entity_id"], lock["mode"]})
	}
	holder, waiter := list.Locks[0], list.Locks[1]
	assert.Equal(t, []any{true, "agents/a"}, []any{holder["granted"], holder["application_name"]})
	assert.Equal(t, []any{false, "agents/b"}, []any{waiter["granted"], waiter["application_name"]})
	assert.Equal(t, []any{holder["pid"]}, waiter["blocked_by"])
}
