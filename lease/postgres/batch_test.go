package postgres_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// The operations of a batch share transactions.
func TestABatchOfALockServerIsFewTransactions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	_, h := servetest.Serve(t, leaseserver.Config{Store: newStore(t, dsn), MaxBody: 1 << 20})
	j := newJudge(t, dsn)
	const n = 500
	send := func(operations []string) (results []struct {
		Status int
		Lease  struct {
			ID    string `json:"lease_id"`
			Token uint64 `json:"fencing_token"`
		}
		Problem map[string]any
	},
	) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/v1/batch", strings.NewReader(`{"operations":[`+strings.Join(operations, ",")+`]}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		response, err := h.Client().Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, 200, response.StatusCode, "%s", data)
		var body struct{ Results json.RawMessage }
		require.NoError(t, json.Unmarshal(data, &body))
		require.NoError(t, json.Unmarshal(body.Results, &results))
		require.Len(t, results, len(operations))
		return results
	}
	transactions := func() int {
		return one[int](j, `SELECT count(DISTINCT xmin::text) FROM pglatch_lease.locks WHERE name LIKE 'job %'`)
	}
	var acquires, renewals, releases []string
	for i := range n {
		acquires = append(acquires, fmt.Sprintf(`{"acquire":{"lock":"job %d","owner_id":"a","ttl_ms":60000,"idempotency_key":"k"}}`, i))
	}
	for i, r := range send(acquires) {
		require.Equal(t, 200, r.Status, r.Problem)
		claim := fmt.Sprintf(`{"lock":"job %d","owner_id":"a","lease_id":%q,"fencing_token":%d`, i, r.Lease.ID, r.Lease.Token)
		renewals, releases = append(renewals, `{"renew":`+claim+`,"ttl_ms":90000}}`), append(releases, `{"release":`+claim+`}}`)
	}
	assert.Less(t, transactions(), n, "how many share one depends on how busy the machine is")
	for _, r := range send(renewals) {
		require.Equal(t, 200, r.Status, r.Problem)
	}
	assert.Equal(t, 1, transactions(), "they are one statement")
	for _, r := range send(releases) {
		require.Equal(t, 200, r.Status, r.Problem)
	}
	assert.Less(t, transactions(), n, "how many share one depends on how busy the machine is")
}

// Goroutines of one client, whose calls share requests, never hold one lock at the same time.
func TestGoroutinesOfAClientThatShareRequestsExcludeEachOther(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Store: newStore(t, pgtest.DSN(t))})
	client := servetest.Client(t, h, leasehttp.ClientConfig{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	last := map[string]uint64{}
	holders := map[string]int{}
	for worker := range 40 {
		wg.Go(func() {
			for i := range 20 {
				r := lease.AcquireRequest{Name: fmt.Sprint("lock ", (worker+i)%5), Holder: fmt.Sprint(worker), TTL: ttl}
				l, err := client.Acquire(t.Context(), r)
				if err != nil {
					if !assert.ErrorIs(t, err, lease.ErrHeld) {
						return
					}
					continue
				}
				mu.Lock()
				holders[l.Name]++
				assert.Equal(t, 1, holders[l.Name])
				assert.Greater(t, l.Token, last[l.Name])
				last[l.Name] = l.Token
				mu.Unlock()
				_, err = client.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: ttl})
				assert.NoError(t, err)
				mu.Lock()
				holders[l.Name]--
				mu.Unlock()
				assert.NoError(t, client.Release(t.Context(), l.Claim))
			}
		})
	}
	wg.Wait()
	assert.NotEmpty(t, last)
}
