package agents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience limits waits for quick events on a slow and busy machine.
const patience = 30 * time.Second

// A replica is the program, with its HTTP interface, in this process.
type replica struct {
	*agents.App
	t      *testing.T
	server *httptest.Server
}

// start opens a replica of the program without its background workers.
func start(t *testing.T, config agents.Config) *replica {
	t.Helper()
	app, err := agents.Open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(app.Close)
	server := httptest.NewServer(app.Handler())
	t.Cleanup(server.Close)
	return &replica{app, t, server}
}

// An answer is the response to a request.
type answer struct {
	status int
	body   string
	err    error
}

func (x answer) decode(t *testing.T, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(x.body), into), x.body)
}

func (r *replica) do(method, path string, body any) answer {
	text, err := json.Marshal(body)
	if err != nil {
		return answer{err: err}
	}
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path, bytes.NewReader(text))
	if err != nil {
		return answer{err: err}
	}
	response, err := r.server.Client().Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(got), err}
}

// send calls a hook; the answer comes through the channel.
func (r *replica) send(hook string, body agents.Hook) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- r.do(http.MethodPost, "/hook/"+hook, body) }()
	return c
}

// call calls a hook that must succeed.
func (r *replica) call(hook string, body agents.Hook) (reply agents.HookReply) {
	r.t.Helper()
	return done(r.t, r.send(hook, body))
}

// done waits for a hook that must succeed.
func done(t *testing.T, c <-chan answer) (reply agents.HookReply) {
	t.Helper()
	select {
	case x := <-c:
		require.NoError(t, x.err)
		require.Equal(t, http.StatusOK, x.status, x.body)
		x.decode(t, &reply)
	case <-time.After(patience):
		require.Fail(t, "no answer")
	}
	return reply
}

// pending asserts that a hook has not been answered.
func pending(t *testing.T, c <-chan answer) {
	t.Helper()
	select {
	case x := <-c:
		require.Fail(t, "answered too early", "%d %s %v", x.status, x.body, x.err)
	default:
	}
}

func eventually(t *testing.T, is func() bool, what string) {
	t.Helper()
	require.Eventually(t, is, patience, 2*time.Millisecond, what)
}

func key(agentID int32) namespace.Key { return agents.Agents.ID(int64(agentID)) }

// hold takes an agent's lock until release is called.
func (r *replica) hold(agentID int32) (release func()) {
	r.t.Helper()
	lock, err := r.Locker().Acquire(r.t.Context(), key(agentID))
	require.NoError(r.t, err)
	return func() { assert.NoError(r.t, lock.Release()) }
}

// stall holds a row lock on the agent in a transaction, so that changes wait until release.
func (r *replica) stall(agentID int32) (release func()) {
	r.t.Helper()
	ctx := context.WithoutCancel(r.t.Context())
	tx, err := r.WorkPool().Begin(ctx)
	require.NoError(r.t, err)
	_, err = tx.Exec(ctx, `SELECT FROM hooks.agents WHERE id = $1 FOR UPDATE`, agentID)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = tx.Rollback(ctx) })
	return func() { assert.NoError(r.t, tx.Rollback(ctx)) }
}

// ask returns one row of the database.
func ask[T any](r *replica, sql string, args ...any) T {
	r.t.Helper()
	rows, _ := r.WorkPool().Query(r.t.Context(), sql, args...)
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(r.t, err)
	return row
}

func (r *replica) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.WorkPool().Exec(r.t.Context(), sql, args...)
	require.NoError(r.t, err)
}
