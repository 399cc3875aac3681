package postgres_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
)

// While PostgreSQL is away, neither the active server nor one that forwards says that a lock is held, and none of its leases is forgotten.
func TestWithoutPostgreSQLNoServerSaysThatALockIsHeld(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	dsn := server.DSN("") + "&connect_timeout=2"
	newStore(t, dsn)
	peers := servetest.NewPeers(t, 20*time.Millisecond, open(t, dsn, nil), open(t, dsn, nil), open(t, dsn, nil))
	held := acquire(t, open(t, dsn, nil), "held", "a")
	claim := `"owner_id":"a","lease_id":"` + held.ID + `","fencing_token":1`
	ask := func(p servetest.Peer, target, body string) (status int, text string) {
		method := http.MethodPost
		if body == "" {
			method = http.MethodGet
		}
		r, err := http.NewRequestWithContext(t.Context(), method, p.HTTP.URL+target, strings.NewReader(body))
		require.NoError(t, err)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		answer, err := p.HTTP.Client().Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		data, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(data)
	}
	requests := []struct{ target, body string }{
		{"/v1/locks/held/acquire", `{"owner_id":"b","ttl_ms":60000}`},
		{"/v1/locks/held/acquire?wait=200ms", `{"owner_id":"b","ttl_ms":60000}`},
		{"/v1/locks/held/renew", `{` + claim + `,"ttl_ms":60000}`},
		{"/v1/locks/held/release", `{"owner_id":"b","lease_id":"x","fencing_token":1}`},
		{"/v1/locks/held/acquire", `{"owner_id":"b","ttl_ms":60000,"mode":"shared"}`},
		{"/v1/locks/held", ""},
		{"/v1/locks", ""},
	}
	batch := `{"operations":[{"acquire":{"lock":"held","owner_id":"b","ttl_ms":60000}},{"renew":{"lock":"other",` + claim + `,"ttl_ms":60000}}]}`
	for i, p := range peers {
		status, text := ask(p, "/v1/locks/held/acquire", `{"owner_id":"b","ttl_ms":60000}`)
		require.Equal(t, 409, status, "the control, server %d: %s", i, text)
	}
	require.NoError(t, server.Stop(t.Context(), pgserver.Immediate))
	for i, p := range peers {
		for _, r := range requests {
			status, text := ask(p, r.target, r.body)
			assert.Equal(t, 503, status, "server %d: %s: %s", i, r.target, text)
		}
		status, text := ask(p, "/v1/batch", batch)
		assert.Equal(t, 200, status, "server %d: %s", i, text)
		assert.Equal(t, 2, strings.Count(text, `{"status":503,`), "server %d: %s", i, text)
	}
	require.NoError(t, server.Start(t.Context()))
	for _, p := range peers {
		await.Until(t, patience, func() bool {
			_, err := p.Client.Renew(t.Context(), lease.RenewRequest{Claim: held.Claim, TTL: ttl})
			return err == nil
		})
		_, err := p.Client.Acquire(t.Context(), servetest.Ask("held", "b"))
		require.ErrorIs(t, err, lease.ErrHeld)
	}
}
