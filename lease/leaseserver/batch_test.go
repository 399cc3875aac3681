package leaseserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/sqlite"
)

func acquireOf(name, holder, key string) wire.BatchOperation {
	r := servetest.Ask(name, holder)
	r.IdempotencyKey = key
	return wire.BatchOperation{Acquire: &wire.BatchAcquireBody{Lock: name, AcquireBody: wire.NewAcquireBody(r)}}
}

func renewOf(c lease.Claim) wire.BatchOperation {
	return wire.BatchOperation{Renew: &wire.BatchRenewBody{Lock: c.Name, RenewBody: wire.NewRenewBody(lease.RenewRequest{Claim: c, TTL: 2 * servetest.Long})}}
}

func releaseOf(c lease.Claim, key string) wire.BatchOperation {
	return wire.BatchOperation{Release: &wire.BatchReleaseBody{Lock: c.Name, ReleaseBody: wire.ReleaseBody{ClaimBody: wire.NewClaimBody(c), IdempotencyKey: key}}}
}

// batch sends operations, and returns their results.
func batch(t *testing.T, h *httptest.Server, token string, all ...wire.BatchOperation) []wire.BatchResult {
	t.Helper()
	body, err := json.Marshal(wire.BatchBody{Operations: all})
	require.NoError(t, err)
	var header []string
	if token != "" {
		header = []string{"Authorization", "Bearer " + token}
	}
	a := send(t, h, http.MethodPost, "/v1/batch", string(body), header...)
	require.Equal(t, http.StatusOK, a.status, a.body)
	var answer wire.BatchedBody
	require.NoError(t, json.Unmarshal([]byte(a.body), &answer))
	require.Len(t, answer.Results, len(all))
	for _, r := range answer.Results {
		switch {
		case r.Status != http.StatusOK:
			require.NotNil(t, r.Problem)
			require.Equal(t, r.Status, r.Problem.Status)
			require.Nil(t, r.Lease)
			require.Nil(t, r.Released)
		default:
			require.Nil(t, r.Problem)
			require.NotEqual(t, r.Lease == nil, r.Released == nil)
		}
	}
	return answer.Results
}

func requireProblem(t *testing.T, r wire.BatchResult, status int, typ string) {
	t.Helper()
	require.Equal(t, status, r.Status, "%+v", r.Problem)
	require.Equal(t, typ, r.Problem.Type)
}

func TestEachOperationOfABatchIsAnsweredByItself(t *testing.T) {
	t.Parallel()
	durable, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "locks.db"), sqlite.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, durable.Close()) })
	memory := leasetest.NewStore()
	for name, store := range map[string]lease.Store{"memory": memory, "one by one": &single{Store: memory}, "SQLite": durable} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, h := servetest.Serve(t, leaseserver.Config{Store: store, Tokens: tokensOfAll})
			lock := func(what string) string { return "jobs/" + name + "/" + what }
			var held [3]lease.Lease
			for i := range held {
				var err error
				held[i], err = store.Acquire(t.Context(), servetest.Ask(lock(fmt.Sprint("held", i)), "a"))
				require.NoError(t, err)
			}
			stale, foreign := held[0].Claim, held[0].Claim
			stale.Name, stale.ID, foreign.Name = held[1].Name, "x", "others/x"
			waiting, share, ttl := acquireOf(lock("wait"), "a", ""), acquireOf(lock("share"), "a", ""), acquireOf(lock("ttl"), "a", "")
			waiting.Acquire.Wait, share.Acquire.Slots, ttl.Acquire.TTLMS = "10s", new(3), 0
			soon := acquireOf(lock("soon"), "a", "")
			soon.Acquire.Wait = "0s"
			odd := acquireOf(lock("odd"), "a", "")
			odd.Acquire.Wait = "soon"
			never := acquireOf(lock("never"), "a", "")
			never.Release = releaseOf(held[0].Claim, "").Release
			results := batch(t, h, tokenOfJobs,
				acquireOf(lock("new"), "a", "k"),
				acquireOf(held[0].Name, "b", ""),
				renewOf(held[0].Claim),
				renewOf(held[2].Claim),
				renewOf(stale),
				releaseOf(held[1].Claim, "k"),
				releaseOf(stale, "k"),
				acquireOf("others/x", "a", ""),
				renewOf(foreign),
				releaseOf(foreign, ""),
				waiting, share, ttl, soon, odd, never,
				wire.BatchOperation{},
				acquireOf("jobs/\x01", "a", ""),
				acquireOf(lock("y::slot::0001"), "a", ""),
				renewOf(lease.Claim{Name: lock("unknown"), Holder: "a", ID: "x", Token: 1}),
				releaseOf(lease.Claim{Name: lock("unknown"), Holder: "a"}, ""),
				acquireOf(lock("long key"), "a", strings.Repeat("k", 513)),
			)
			assert.Equal(t, lock("new"), results[0].Lease.Lock)
			assert.Equal(t, "a", results[0].Lease.OwnerID)
			requireProblem(t, results[1], 409, wire.TypeHeld)
			assert.Equal(t, "a", results[1].Problem.OwnerID)
			assert.Equal(t, held[0].Claim, results[2].Lease.Lease().Claim)
			assert.Greater(t, results[2].Lease.Lease().Remaining, servetest.Long)
			assert.Equal(t, held[2].Claim, results[3].Lease.Lease().Claim)
			requireProblem(t, results[4], 409, wire.TypeStale)
			assert.Equal(t, held[1].Claim, results[5].Released.Claim(results[5].Released.Lock))
			requireProblem(t, results[6], 409, wire.TypeStale)
			for _, r := range results[7:10] {
				requireProblem(t, r, 403, wire.TypeForbidden)
			}
			requireProblem(t, results[10], 422, wire.TypeOutOfRange)
			assert.Contains(t, results[10].Problem.Detail, "send this acquire alone")
			requireProblem(t, results[11], 400, wire.TypeInvalid)
			assert.Contains(t, results[11].Problem.Detail, "send it alone")
			requireProblem(t, results[12], 422, wire.TypeOutOfRange)
			assert.Equal(t, 200, results[13].Status)
			requireProblem(t, results[14], 400, wire.TypeInvalid)
			requireProblem(t, results[15], 400, wire.TypeInvalid)
			requireProblem(t, results[16], 400, wire.TypeInvalid)
			requireProblem(t, results[17], 400, wire.TypeInvalid)
			requireProblem(t, results[18], 400, wire.TypeInvalid)
			requireProblem(t, results[19], 404, wire.TypeNotFound)
			assert.GreaterOrEqual(t, results[20].Status, 400)
			requireProblem(t, results[21], 400, wire.TypeInvalid)
			_, err := store.Get(t.Context(), lock("never"))
			require.ErrorIs(t, err, lease.ErrNotFound)
		})
	}
}

func TestABatchHasAThousandOperationsAtMost(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{MaxBody: 1 << 20})
	all := make([]wire.BatchOperation, wire.MaxBatch, wire.MaxBatch+1)
	for i := range all {
		all[i] = acquireOf(fmt.Sprint("job ", i), "a", "")
	}
	for _, r := range batch(t, h, "", all...) {
		require.Equal(t, 200, r.Status)
	}
	body, err := json.Marshal(wire.BatchBody{Operations: append(all, acquireOf("more", "a", ""))})
	require.NoError(t, err)
	a := send(t, h, http.MethodPost, "/v1/batch", string(body))
	assert.Equal(t, 422, a.status)
	assert.Contains(t, a.body, "at most 1000")
	assert.Equal(t, 404, send(t, h, http.MethodGet, "/v1/locks/more", "").status, "nothing was done")
	assert.Empty(t, batch(t, h, ""))
}

func TestABatchThatIsNotWellFormedIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{MaxBody: 1000})
	const good = `{"acquire":{"lock":"job","owner_id":"a","ttl_ms":60000}}`
	for body, status := range map[string]int{
		`{"operations":[` + good + `,{"acquire":{"lock":"x","lock":"y","owner_id":"a","ttl_ms":60000}}]}`:   400,
		`{"operations":[` + good + `,{"acquire":{"lock":"x","owner_id":"a","ttl_ms":60000,"Wait":"1s"}}]}`:  400,
		`{"operations":[` + good + `,{"acquire":{"lock":"x","owner_id":"a","ttl_ms":60000,"watch":"1s"}}]}`: 400,
		`{"operations":[` + good + `,{"release":{"lock":"x","owner_id":"a","wait":"1s"}}]}`:                 400,
		`{"operations":[` + good + `,{"acquire":{"lock":"x","owner_id":"\ud800","ttl_ms":60000}}]}`:         400,
		`{"operations":[` + good + `,{"adopt":{}}]}`:                                                        400,
		`{"operations":[` + good + `,{"acquire":{"metadata":{"a":"b","a":"c"}}}]}`:                          400,
		`{"operations":[` + good + `,[]]}`:                                                                  400,
		`{"operations":[` + good + `],"operations":[]}`:                                                     400,
		`{"operations":[` + good + `]}{}`:                                                                   400,
		`{"operations":[` + good + `,{"release":{"lock":"x","fencing_token":-1}}]}`:                         422,
		`{"operations":[` + strings.Repeat(" ", 1000) + good + `]}`:                                         413,
	} {
		a := send(t, h, http.MethodPost, "/v1/batch", body)
		assert.Equal(t, status, a.status, "%s: %s", body, a.body)
		assert.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	}
	a := send(t, h, http.MethodPost, "/v1/batch?wait=1s", `{"operations":[`+good+`]}`)
	assert.Equal(t, 400, a.status, a.body)
	assert.Equal(t, 415, send(t, h, http.MethodPost, "/v1/batch", `{}`, "Content-Type", "text/plain").status)
	assert.Equal(t, 405, send(t, h, http.MethodGet, "/v1/batch", "").status)
	assert.Equal(t, 404, send(t, h, http.MethodGet, "/v1/locks/job", "").status, "nothing was done")
}

func TestOperationsOnOneLockAreCarriedOutInTheOrderOfTheBatch(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	for i := range 50 {
		name := fmt.Sprint("job ", i)
		l := acquire(t, store, servetest.Ask(name, "a"))
		results := batch(t, h, "",
			acquireOf(name, "b", ""), renewOf(l.Claim), releaseOf(l.Claim, ""), renewOf(l.Claim), acquireOf(name, "c", "k"), acquireOf(name, "d", ""), acquireOf(name, "c", "k"))
		requireProblem(t, results[0], 409, wire.TypeHeld)
		require.Equal(t, 200, results[1].Status)
		require.Equal(t, 200, results[2].Status)
		requireProblem(t, results[3], 409, wire.TypeStale)
		require.Equal(t, 200, results[4].Status)
		requireProblem(t, results[5], 409, wire.TypeHeld)
		require.Equal(t, results[4].Lease.LeaseID, results[6].Lease.LeaseID, "the same request")
	}
}

func TestABatchThatIsSentAgainIsAnsweredAsBefore(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	var held [2]lease.Lease
	var err error
	for i := range held {
		held[i], err = store.Acquire(t.Context(), servetest.Ask(fmt.Sprint("held ", i), "a"))
		require.NoError(t, err)
	}
	all := []wire.BatchOperation{
		acquireOf("new", "a", "k1"), releaseOf(held[0].Claim, "k2"), acquireOf(held[0].Name, "b", "k3"), releaseOf(held[1].Claim, "k4"), acquireOf("new", "b", "k5"),
	}
	first := batch(t, h, "", all...)
	next := acquire(t, store, servetest.Ask(held[1].Name, "next"))
	again := batch(t, h, "", all...)
	for i := range all {
		require.Equal(t, first[i].Status, again[i].Status, i)
	}
	assert.Equal(t, first[0].Lease.LeaseID, again[0].Lease.LeaseID)
	assert.Equal(t, first[2].Lease.LeaseID, again[2].Lease.LeaseID)
	requireProblem(t, again[4], 409, wire.TypeHeld)
	record := recordOf(t, store, held[1].Name)
	assert.Equal(t, next.Claim, record.Claim, "its successor has the lock")
	requireProblem(t, batch(t, h, "", releaseOf(held[1].Claim, "another"))[0], 409, wire.TypeStale)
}

func TestARequestWithoutTheRightIsNoBatch(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Tokens: tokensOfAll})
	body := `{"operations":[{"acquire":{"lock":"job","owner_id":"a","ttl_ms":60000}}]}`
	assert.Equal(t, 403, send(t, h, http.MethodPost, "/v1/batch", body, "Authorization", "Bearer "+tokenOfReader).status)
	assert.Equal(t, 401, send(t, h, http.MethodPost, "/v1/batch", body).status)
}

func TestAuthorizeIsAskedForEachOperationOfABatch(t *testing.T) {
	t.Parallel()
	var asked []string
	_, h := servetest.Serve(t, leaseserver.Config{Authorize: func(r *http.Request) error {
		asked = append(asked, r.URL.EscapedPath())
		if strings.HasPrefix(r.URL.Path, "/v1/locks/secret/") {
			return errors.New("no")
		}
		return nil
	}})
	claim := lease.Claim{Name: "a/b c", Holder: "a", ID: "x", Token: 1}
	results := batch(t, h, "", acquireOf("secret", "a", ""), renewOf(claim), releaseOf(claim, ""))
	requireProblem(t, results[0], 403, wire.TypeForbidden)
	requireProblem(t, results[1], 404, wire.TypeNotFound)
	assert.Equal(t, []string{"/v1/batch", "/v1/locks/secret/acquire", "/v1/locks/a%2Fb%20c/renew", "/v1/locks/a%2Fb%20c/release"}, asked)
}

func TestThePoliciesOfNamesApplyToEachOperationOfABatch(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{TTLPolicies: []leaseserver.TTLPolicy{{Prefix: "short/", Max: time.Second, Default: time.Second}}})
	byDefault := acquireOf("short/y", "a", "")
	byDefault.Acquire.TTLMS = 0
	results := batch(t, h, "", acquireOf("short/x", "a", ""), byDefault, acquireOf("x", "a", ""))
	requireProblem(t, results[0], 422, wire.TypeOutOfRange)
	assert.LessOrEqual(t, results[1].Lease.TTLRemainingMS, int64(1000))
	assert.Equal(t, 200, results[2].Status)
}

func TestTheRateOfAnAddressCountsEachOperationOfABatch(t *testing.T) {
	t.Parallel()
	peers := map[string]leaseserver.Peers{"alone": {}, "forwarded": {Token: "secret-of-servers"}}
	for name, p := range peers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := leaseserver.Config{Store: leasetest.NewStore(), Rate: 0.001, Burst: 3, Peers: p}
			var h *httptest.Server
			if name == "alone" {
				_, h = servetest.Serve(t, c)
			} else {
				both := []servetest.Peer{servetest.NewPeerOf(t, c), servetest.NewPeerOf(t, c)}
				servetest.Elect(t, both, 0)
				h = both[1].HTTP
			}
			results := batch(t, h, "", acquireOf("1", "a", ""), acquireOf("2", "a", ""), acquireOf("3", "a", ""), acquireOf("4", "a", ""), acquireOf("5", "a", ""))
			for _, r := range results[:3] {
				require.Equal(t, 200, r.Status)
			}
			for _, r := range results[3:] {
				requireProblem(t, r, 429, wire.TypeRateLimited)
				assert.Positive(t, r.Problem.RecommendedRetryMS)
			}
		})
	}
}

// A store that fails or panics for one lock answers the others.
func TestAFailureOfTheStoreIsThatOfOneOperation(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Store: &faulty{Store: leasetest.NewStore()}})
	for _, faulty := range []string{"fails", "panics"} {
		results := batch(t, h, "", acquireOf("1"+faulty, "a", ""), acquireOf(faulty, "a", ""), acquireOf("2"+faulty, "a", ""), renewOf(lease.Claim{Name: faulty, Holder: "a", ID: "x", Token: 1}))
		assert.Equal(t, 200, results[0].Status)
		assert.GreaterOrEqual(t, results[1].Status, 500)
		assert.Equal(t, 200, results[2].Status)
		requireProblem(t, results[3], 404, wire.TypeNotFound)
	}
}

type faulty struct{ lease.Store }

func (f *faulty) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	switch r.Name {
	case "fails":
		return lease.Lease{}, errors.New("the network is gone")
	case "panics":
		panic("a bug of the store")
	}
	return f.Store.Acquire(ctx, r)
}

// A slow store is not waited for longer than for one operation after another.
func TestWhatASlowBatchDoesNotReachIsBusy(t *testing.T) {
	t.Parallel()
	store := &servetest.Spy{Store: leasetest.NewStore(), After: func() { <-time.After(aMoment) }}
	_, h := servetest.Serve(t, leaseserver.Config{Store: store, StoreTimeout: 5 * aMoment})
	all := make([]wire.BatchOperation, 50)
	for i := range all {
		all[i] = acquireOf("job", "a", "k")
	}
	results := batch(t, h, "", all...)
	assert.Equal(t, 200, results[0].Status)
	requireProblem(t, results[49], 503, wire.TypeBusy)
}

// The store groups what a batch asks for: there are far fewer commits than operations.
func TestTheOperationsOfABatchShareCommits(t *testing.T) {
	t.Parallel()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "locks.db"), sqlite.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, store.Close()) })
	_, h := servetest.Serve(t, leaseserver.Config{Store: store, StoreTimeout: await.Patience, MaxBody: 1 << 20})
	all := make([]wire.BatchOperation, wire.MaxBatch)
	for i := range all {
		all[i] = acquireOf(fmt.Sprint("job ", i), "a", "")
	}
	before := store.Stats().Transactions
	for _, r := range batch(t, h, "", all...) {
		require.Equal(t, 200, r.Status)
	}
	assert.Less(t, store.Stats().Transactions-before, uint64(200), "of 1000 acquires")
}

func TestABatchIsForwardedAsAWhole(t *testing.T) {
	t.Parallel()
	peers := newPeers(t, 2, -1)
	results := batch(t, peers[1].HTTP, "", acquireOf("a", "x", ""), acquireOf("b", "x", ""))
	require.Equal(t, 200, results[0].Status)
	require.Equal(t, 200, results[1].Status)
	assert.InDelta(t, 1, forwarded(t, peers[1], "answered"), 0)
	assert.InDelta(t, 2, servetest.Metric(t, peers[0].Server, "lock_acquire_total", `"success"`), 0)
	assert.Zero(t, servetest.Metric(t, peers[1].Server, "lock_acquire_total", `"success"`))
	peers[1].Election.Believe("http://127.0.0.1:1")
	servetest.AwaitMetric(t, peers[1].Server, "lock_server_forwards", 0)
	results = batch(t, peers[1].HTTP, "", acquireOf("a", "y", ""), releaseOf(results[1].Lease.Lease().Claim, ""))
	requireProblem(t, results[0], 409, wire.TypeHeld)
	require.Equal(t, 200, results[1].Status, "a server that reaches no active one answers by itself")
}

// A release in a batch hands the lock to the request that waits for it.
func TestAReleaseInABatchServesTheFirstWaiter(t *testing.T) {
	t.Parallel()
	peer := servetest.NewPeer(t, leasetest.NewStore(), -1)
	held := acquire(t, peer.Client, servetest.Ask("job", "a"))
	got := acquires(t, peer, servetest.Ask("job", "b"))
	servetest.AwaitWaiters(t, peer.Server, 1)
	awaitStanding(t, peer.Server, "job")
	require.Equal(t, 200, batch(t, peer.HTTP, "", releaseOf(held.Claim, ""))[0].Status)
	assert.Equal(t, "b", (<-got).Holder)
}

// An acquire in a batch is not before those who wait: the lock may be free for a moment before the first of them has it.
func TestAnAcquireInABatchOvertakesNobodyWhoWaits(t *testing.T) {
	t.Parallel()
	s, h, cl := served(t, leaseserver.Config{Store: leasetest.NewStore()})
	held := acquire(t, cl, servetest.Ask("job", "a"))
	requireProblem(t, batch(t, h, "", acquireOf("job", "c", ""))[0], 409, wire.TypeHeld)
	got := make(chan error, 1)
	go func() {
		_, err := cl.AcquireWait(t.Context(), servetest.Ask("job", "b"), servetest.Bound)
		got <- err
	}()
	servetest.AwaitMetric(t, s, "lock_waiters", 1)
	results := batch(t, h, "", acquireOf("job", "c", ""), acquireOf("other", "c", ""))
	requireProblem(t, results[0], 503, wire.TypeBusy)
	assert.Equal(t, 200, results[1].Status)
	require.NoError(t, cl.Release(t.Context(), held.Claim))
	require.NoError(t, <-got)
	requireProblem(t, batch(t, h, "", acquireOf("job", "c", ""))[0], 409, wire.TypeHeld)
}

// Batches at the same time compete like single requests: each lock is granted once.
func TestBatchesAtTheSameTimeGrantEachLockOnce(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	granted := map[string]int{}
	for worker := range 8 {
		wg.Go(func() {
			var all []wire.BatchOperation
			for i := range 100 {
				all = append(all, acquireOf(fmt.Sprint("job ", i), fmt.Sprint(worker), ""))
			}
			for _, r := range batch(t, h, "", all...) {
				if r.Status == 200 {
					mu.Lock()
					granted[r.Lease.Lock]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	assert.Len(t, granted, 100)
	for name, n := range granted {
		assert.Equal(t, 1, n, name)
	}
}
