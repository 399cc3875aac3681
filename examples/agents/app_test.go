package agents_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestReplicasThatStartAtOnceOnAnEmptyDatabaseAllStart(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			app, err := agents.Open(t.Context(), agents.Config{DSN: dsn})
			if assert.NoError(t, err) {
				app.Close()
			}
		})
	}
	all.Wait()
	a := start(t, agents.Config{DSN: dsn})
	assert.Equal(t, 4, ask[int](a, `SELECT count(*) FROM pg_tables WHERE schemaname = 'hooks'`))
}

func TestAnAppThatCannotBeOpenedSaysWhyAndLeavesNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for name, config := range map[string]agents.Config{
		"DSN":           {},
		"SessionTTL":    {DSN: dsn, SessionTTL: 1},
		"TranscriptDir": {DSN: dsn, TranscriptDir: "/no/such/directory"},
		"unavailable":   {DSN: "postgres://127.0.0.1:1/x?connect_timeout=1"},
	} {
		_, err := agents.Open(t.Context(), config)
		assert.ErrorContains(t, err, name)
	}
}

func TestServeEndsWithItsContextThoughABrowserIsConnected(t *testing.T) {
	t.Parallel()
	app, err := agents.Open(t.Context(), agents.Config{DSN: pgtest.DSN(t), WorkerInterval: time.Millisecond})
	require.NoError(t, err)
	defer app.Close()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- app.Serve(ctx, listener) }()

	url := "http://" + listener.Addr().String()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	events, err := client.Get(url + "/api/events")
	require.NoError(t, err)
	defer events.Body.Close()
	hook, err := client.Post(url+"/hook/session-start", "application/json", strings.NewReader(`{"session_id": "s"}`))
	require.NoError(t, err)
	require.NoError(t, hook.Body.Close())
	require.Equal(t, http.StatusOK, hook.StatusCode)
	line, err := bufio.NewReader(events.Body).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, `data: {"agent_id":1,"hook":"session-start"}`+"\n", line)
	eventually(t, func() bool {
		var checked bool
		err := app.WorkPool().QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM hooks.agents WHERE context_checked_at IS NOT NULL)`).Scan(&checked)
		return err == nil && checked
	}, "the workers work")

	stop()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		require.Fail(t, "Serve did not end")
	}
}
