package leasehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A crowd is goroutines that ask one server through one client.
type crowd struct {
	*direct
	store  *leasetest.Store
	client *leasehttp.Client
}

// passing is the time of a request, in which others gather.
const passing = time.Millisecond

func newCrowd(t *testing.T, c leasehttp.ClientConfig) *crowd {
	t.Helper()
	f := &crowd{store: leasetest.NewStore()}
	server, err := leaseserver.New(leaseserver.Config{Store: f.store, PollInterval: -1})
	require.NoError(t, err)
	f.direct = &direct{handler: server.Handler()}
	f.breaks(nil)
	c.BaseURLs, c.HTTPClient = []string{"http://localhost"}, &http.Client{Transport: f.direct}
	f.client, err = leasehttp.NewClient(c)
	require.NoError(t, err)
	t.Cleanup(f.client.Close)
	return f
}

// breaks makes each request take a time, and fault answer it.
func (f *crowd) breaks(fault func(r *http.Request, serve func() *http.Response) (*http.Response, error)) {
	f.direct.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
		bubble.Sleep(passing)
		if fault == nil {
			return serve(), nil
		}
		return fault(r, serve)
	})
}

func (f *crowd) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[what]
}

// claim is what proves the lease of a lock.
func (f *crowd) claim(t *testing.T, i int) lease.Claim {
	t.Helper()
	r := recordOf(t, f.store, lock(i).Name)
	return r.Claim
}

func isBatch(r *http.Request) bool { return r.URL.Path == "/v1/batch" }

// lock is the request for one of the locks of a crowd.
func lock(i int) lease.AcquireRequest {
	return lease.AcquireRequest{Name: fmt.Sprintf("<job> %d", i), Holder: "a", TTL: flockTTL, Metadata: map[string]string{"i": fmt.Sprint(i)}}
}

// ahead is how many of the calls that come at the same time go alone, before others share requests.
const ahead = 4

// all runs n goroutines, and waits for them. Each asks before the next one begins.
func all(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
		synctest.Wait()
	}
	wg.Wait()
}

// acquireAll acquires n locks at the same time.
func (f *crowd) acquireAll(t *testing.T, n int) []lease.Lease {
	t.Helper()
	leases := make([]lease.Lease, n)
	all(n, func(i int) {
		var err error
		leases[i], err = f.client.Acquire(t.Context(), lock(i))
		assert.NoError(t, err)
	})
	for i, l := range leases {
		require.Equal(t, lock(i).Name, l.Name)
		require.Equal(t, lock(i).Metadata, l.Metadata)
	}
	return leases
}

func TestALoneCallIsThePlainRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		for range 3 {
			l := acquire(t, f.client, lock(0))
			_, err := f.client.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: flockTTL})
			require.NoError(t, err)
			require.NoError(t, f.client.Release(t.Context(), l.Claim))
		}
		assert.Equal(t, map[string]int{"acquire": 3, "renew": 3, "release": 3}, f.sent)
	})
}

func TestCallsAtTheSameTimeShareRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		const n = 50
		leases := f.acquireAll(t, n)
		assert.Equal(t, map[string]int{"acquire": ahead, "batch": 1}, f.sent, "the first ones, and all others together")
		f.breaks(nil)
		all(n, func(i int) {
			if i%2 == 0 {
				l, err := f.client.Renew(t.Context(), lease.RenewRequest{Claim: leases[i].Claim, TTL: 2 * flockTTL, Metadata: map[string]string{}})
				assert.NoError(t, err)
				assert.Equal(t, leases[i].Claim, l.Claim)
				assert.Greater(t, l.Remaining, flockTTL)
				assert.Empty(t, l.Metadata)
			} else {
				assert.NoError(t, f.client.Release(t.Context(), leases[i].Claim))
			}
		})
		assert.Equal(t, map[string]int{"renew": ahead / 2, "release": ahead / 2, "batch": 1}, f.sent)
		for i, l := range leases {
			r := recordOf(t, f.store, l.Name)
			assert.Equal(t, i%2 == 0, r.State == lease.Held)
		}
	})
}

// The renewals of one call share requests from the first on, and share them with other calls.
func TestRenewalsOfOneCallAreOneRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		const n = 50
		leases := f.acquireAll(t, n)
		var requests []lease.RenewRequest
		for _, l := range leases[1:] {
			requests = append(requests, lease.RenewRequest{Claim: l.Claim, TTL: 2 * flockTTL})
		}
		requests[7].ID, requests[9].Name = "stale", ""
		renewed := func(results []lease.RenewResult, err error) {
			assert.NoError(t, err)
			for i, r := range results {
				switch i {
				case 7:
					assert.ErrorIs(t, r.Err, lease.ErrStale)
				case 9:
					assert.ErrorIs(t, r.Err, lease.ErrInvalid)
				default:
					assert.NoError(t, r.Err)
					assert.Equal(t, requests[i%len(requests)].Claim, r.Lease.Claim)
				}
			}
		}
		f.breaks(nil)
		start := time.Now()
		renewed(f.client.RenewAll(t.Context(), requests))
		assert.Equal(t, passing, time.Since(start), "nobody waits for what is invalid")
		assert.Equal(t, map[string]int{"batch": 1}, f.sent)
		f.breaks(nil)
		all(2, func(i int) {
			if i == 0 {
				renewed(f.client.RenewAll(t.Context(), requests))
				return
			}
			assert.NoError(t, f.client.Release(t.Context(), leases[0].Claim))
		})
		assert.Equal(t, map[string]int{"batch": 1, "release": 1}, f.sent, "it finds nobody to wait for once the first is answered")
		f.breaks(nil)
		renewed(f.client.RenewAll(t.Context(), slices.Concat(requests, requests)[:len(requests)+1]))
		assert.Equal(t, map[string]int{"batch": 1, "renew": 1}, f.sent, "a lock is in a batch once")
	})
}

func TestMoreThanABatchHoldsGoesInSeveral(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		f.acquireAll(t, 2200)
		assert.Equal(t, ahead, f.count("acquire"))
		assert.Greater(t, f.count("batch"), 1)
		assert.LessOrEqual(t, f.count("batch"), 5)
	})
}

func TestACallerThatLeavesABatchFailsNoOther(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]time.Duration{"before it is sent": passing / 2, "when it is under way": passing * 3 / 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newCrowd(t, leasehttp.ClientConfig{})
				gone, leave := context.WithCancel(t.Context())
				time.AfterFunc(when, leave)
				start := time.Now()
				all(10, func(i int) {
					ctx := t.Context()
					if i == 5 || i == 7 {
						ctx = gone
					}
					_, err := f.client.Acquire(ctx, lock(i))
					if i != 5 && i != 7 {
						assert.NoError(t, err)
						return
					}
					assert.ErrorIs(t, err, context.Canceled)
					assert.NotErrorIs(t, err, lease.ErrBusy, "the outcome is not known")
					assert.Equal(t, when, time.Since(start))
				})
				assert.Equal(t, map[string]int{"acquire": ahead, "batch": 1}, f.sent)
			})
		})
	}
}

func TestABatchThatNobodyWaitsForEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		ended := make(chan time.Time, 1)
		f.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
			if !isBatch(r) {
				return serve(), nil
			}
			<-r.Context().Done()
			ended <- time.Now()
			return nil, r.Context().Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*passing)
		defer cancel()
		all(10, func(i int) {
			if i < ahead {
				_, _ = f.client.Acquire(t.Context(), lock(i))
				return
			}
			_, err := f.client.Acquire(ctx, lock(i))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		end, _ := ctx.Deadline()
		assert.Equal(t, end, <-ended)
	})
}

// The answer to a batch is lost. Each caller sends its request again, with its key.
func TestACallWhoseBatchGotNoAnswerGetsTheSameAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		lose := func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
			response := serve()
			if !isBatch(r) {
				return response, nil
			}
			for i := range 10 { // others are faster
				_, _ = f.store.Acquire(context.WithoutCancel(r.Context()), lease.AcquireRequest{Name: lock(i).Name, Holder: "next", TTL: flockTTL})
			}
			return nil, errLostAnswer
		}
		f.breaks(lose)
		leases := f.acquireAll(t, 10)
		for _, l := range leases {
			assert.Equal(t, uint64(1), l.Token, "it was granted once")
		}
		assert.Equal(t, map[string]int{"acquire": 10, "batch": 1}, f.sent)
		f.breaks(lose)
		all(10, func(i int) { assert.NoError(t, f.client.Release(t.Context(), leases[i].Claim)) })
		assert.Equal(t, map[string]int{"release": 10, "batch": 1}, f.sent)
		for i := ahead; i < 10; i++ {
			r := recordOf(t, f.store, lock(i).Name)
			assert.Equal(t, "next", r.Holder)
		}
	})
}

func TestAServerThatTakesNoBatchesIsAskedByPlainRequests(t *testing.T) {
	t.Parallel()
	const problem = "application/problem+json"
	for name, c := range map[string]struct {
		status          int
		mediaType, body string
	}{
		"of an earlier version":        {404, problem, problemOf(wire.TypeNoRoute)},
		"for small bodies":             {413, problem, problemOf(wire.TypeTooLarge)},
		"that allows only other paths": {403, problem, problemOf(wire.TypeForbidden)},
		"behind a proxy that does so":  {403, "text/html", "<p>forbidden"},
		"that panics":                  {500, problem, problemOf(wire.TypeInternal)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newCrowd(t, leasehttp.ClientConfig{})
				f.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
					if !isBatch(r) {
						return serve(), nil
					}
					w := httptest.NewRecorder()
					w.Header().Set("Content-Type", c.mediaType)
					w.WriteHeader(c.status)
					_, _ = io.WriteString(w, c.body)
					return w.Result(), nil
				})
				f.acquireAll(t, 10)
				assert.Equal(t, map[string]int{"acquire": 10, "batch": 1}, f.sent)
				for range 5 {
					all(10, func(i int) {
						_, err := f.client.Acquire(t.Context(), lock(100+i))
						assert.True(t, err == nil || strings.Contains(err.Error(), "held"))
					})
				}
				assert.Equal(t, 1, f.count("batch"), "it is not asked each time")
				f.breaks(nil)
				bubble.Sleep(time.Minute)
				for i := range 10 {
					_ = f.store.Release(t.Context(), f.claim(t, i))
				}
				f.acquireAll(t, 10)
				assert.Equal(t, 1, f.count("batch"), "it may be another version now")
			})
		})
	}
}

func TestAnAnswerToAnotherBatchIsNone(t *testing.T) {
	t.Parallel()
	other := `{"status":200,"lease":{"lock":"x","owner_id":"a","lease_id":"x","fencing_token":1,"ttl_remaining_ms":1000}}`
	released := `{"status":200,"released":{"lock":"<job> 4","owner_id":"a","lease_id":"x","fencing_token":1}}`
	for _, body := range []string{`{"results":[]}`, `{"results":[` + other + `]}`, `{"results":[` + other + `,{}]}`, `{"results":[` + released + `,` + released + `]}`, `{"results":[`, `null`} {
		synctest.Test(t, func(t *testing.T) {
			f := newCrowd(t, leasehttp.ClientConfig{Resends: -1})
			f.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
				if !isBatch(r) {
					return serve(), nil
				}
				w := httptest.NewRecorder()
				w.Header().Set("Content-Type", wire.JSONType)
				_, _ = io.WriteString(w, body)
				return w.Result(), nil
			})
			all(ahead+2, func(i int) {
				_, err := f.client.Acquire(t.Context(), lock(i))
				assert.Equal(t, i >= ahead, err != nil, body)
				assert.NotErrorIs(t, err, lease.ErrBusy, "the outcome is not known")
			})
		})
	}
}

// Requests that take long do not hold up those that come meanwhile, nor those of the other line.
func TestASlowRequestIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		held := acquire(t, f.client, lock(99))
		f.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
			if !isBatch(r) && strings.HasSuffix(r.URL.Path, "/acquire") {
				bubble.Sleep(5 * time.Second)
			}
			return serve(), nil
		})
		start := time.Now()
		all(20, func(i int) {
			if i == 19 {
				assert.NoError(t, f.client.Release(t.Context(), held.Claim))
				assert.LessOrEqual(t, time.Since(start), passing, "a release waits for no acquire")
				return
			}
			_, err := f.client.Acquire(t.Context(), lock(i))
			assert.NoError(t, err)
			if i >= ahead {
				assert.LessOrEqual(t, time.Since(start), 30*time.Millisecond)
			}
		})
		assert.Equal(t, map[string]int{"acquire": ahead, "batch": 1, "release": 1}, f.sent)
	})
}

func TestAClosedClientSendsPlainRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		f.client.Close()
		f.acquireAll(t, 10)
		assert.Equal(t, map[string]int{"acquire": 10}, f.sent)
	})
}

// Each lease of a batch is trusted from before the batch was sent.
func TestALeaseOfABatchIsTrustedFromBeforeItWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{Margin: -1})
		const late = 2 * time.Second
		f.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
			bubble.Sleep(late)
			response := serve()
			bubble.Sleep(late)
			return response, nil
		})
		all(10, func(i int) {
			l, err := f.client.AcquireWithRetry(t.Context(), lock(i).Name, "a", leasehttp.AcquireOptions{NoLongPoll: true, TTL: flockTTL})
			assert.NoError(t, err)
			record, err := f.store.Get(t.Context(), lock(i).Name)
			assert.NoError(t, err)
			assert.LessOrEqual(t, l.Remaining(), record.Remaining-late)
			assert.GreaterOrEqual(t, l.Remaining(), record.Remaining-late-2*passing)
		})
		assert.Equal(t, 1, f.count("batch"))
	})
}

// Operations on one lock would wait for each other in a batch.
func TestALockIsInABatchOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		var granted atomic.Int64
		all(20, func(i int) {
			_, err := f.client.Acquire(t.Context(), lock(i%10))
			if err == nil {
				granted.Add(1)
				return
			}
			assert.ErrorIs(t, err, lease.ErrHeld)
		})
		assert.Equal(t, int64(10), granted.Load())
		assert.Equal(t, map[string]int{"acquire": ahead + 6, "batch": 1}, f.sent)
	})
}

// What the store is too busy for in a batch is sent again alone, where it can wait.
func TestACallThatIsBusyInABatchIsSentAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{Resends: -1})
		f.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
			if !isBatch(r) {
				return serve(), nil
			}
			w := httptest.NewRecorder()
			w.Header().Set("Content-Type", wire.JSONType)
			busy := `{"status":503,"problem":` + problemOf(wire.TypeBusy) + `}`
			_, _ = io.WriteString(w, `{"results":[`+busy+`,`+busy+`]}`)
			return w.Result(), nil
		})
		f.acquireAll(t, ahead+2)
		assert.Equal(t, map[string]int{"acquire": ahead + 2, "batch": 1}, f.sent)
	})
}

// A call that costs a batch its answer, such as one that the server dies of, is alone in the end.
func TestACallThatCostsAllTheirAnswersIsAloneInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		several, err := leasehttp.NewClient(leasehttp.ClientConfig{ // the next server is asked at once
			BaseURLs: []string{"http://a", "http://b"}, HTTPClient: &http.Client{Transport: f.direct},
		})
		require.NoError(t, err)
		defer several.Close()
		var requests []lease.RenewRequest
		for _, l := range f.acquireAll(t, 200) {
			requests = append(requests, lease.RenewRequest{Claim: l.Claim, TTL: flockTTL})
		}
		f.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
			body, err := r.GetBody()
			if !assert.NoError(t, err) {
				return nil, err
			}
			data, err := io.ReadAll(body)
			assert.NoError(t, err)
			if strings.Contains(string(data), requests[7].ID) {
				return nil, errLostAnswer
			}
			return serve(), nil
		})
		results, err := several.RenewAll(t.Context(), requests)
		require.NoError(t, err)
		for i, r := range results {
			assert.Equal(t, i == 7, r.Err != nil, r.Err)
		}
	})
}

// Acquires that may wait share requests while their locks are free. One whose lock is held waits alone, and so does the next one on it.
func TestAcquiresThatMayWaitShareRequestsWhileTheirLocksAreFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		const n, holds = 20, time.Second
		for _, contended := range []bool{false, true} {
			var inBatch atomic.Bool
			f.breaks(func(r *http.Request, serve func() *http.Response) (*http.Response, error) {
				body, err := r.GetBody()
				if !assert.NoError(t, err) {
					return nil, err
				}
				data, err := io.ReadAll(body)
				assert.NoError(t, err)
				inBatch.Store(inBatch.Load() || isBatch(r) && strings.Contains(string(data), ` 19"`))
				return serve(), nil
			})
			held := acquire(t, f.store, lease.AcquireRequest{Name: lock(n - 1).Name, Holder: "other", TTL: flockTTL})
			time.AfterFunc(holds, func() { assert.NoError(t, f.client.Release(t.Context(), held.Claim)) })
			start := time.Now()
			all(n, func(i int) {
				l, err := f.client.AcquireWait(t.Context(), lock(i), flockTTL)
				assert.NoError(t, err)
				assert.Equal(t, lock(i).Name, l.Name)
				if i == n-1 {
					assert.GreaterOrEqual(t, time.Since(start), holds)
					assert.Less(t, time.Since(start), holds+10*passing)
				} else {
					assert.Less(t, time.Since(start), 10*passing, "it waits for no other")
				}
			})
			assert.Equal(t, map[string]int{"acquire": ahead + 1, "batch": 1, "release": 1}, f.sent)
			assert.Equal(t, !contended, inBatch.Load())
			for i := range n {
				require.NoError(t, f.store.Release(t.Context(), f.claim(t, i)))
			}
		}
	})
}

// What an acquire waits alone is the rest of its time.
func TestAnAcquireThatWasInABatchWaitsNoLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, leasehttp.ClientConfig{})
		const n, wait = ahead + 2, time.Second
		acquire(t, f.store, lease.AcquireRequest{Name: lock(n - 1).Name, Holder: "other", TTL: flockTTL})
		start := time.Now()
		all(n, func(i int) {
			_, err := f.client.AcquireWait(t.Context(), lock(i), wait)
			if i < n-1 {
				assert.NoError(t, err)
				return
			}
			assert.ErrorIs(t, err, lease.ErrHeld)
			assert.GreaterOrEqual(t, time.Since(start), wait)
			assert.Less(t, time.Since(start), wait+10*passing)
		})
		assert.Equal(t, 1, f.count("batch"))
	})
}

func TestAnAnswerToOtherRenewalsIsNone(t *testing.T) {
	t.Parallel()
	all := held(t, leasetest.NewStore(), 2)
	other := `{"status":200,"lease":{"lock":"x","owner_id":"a","lease_id":"x","fencing_token":1,"ttl_remaining_ms":1000}}`
	for _, body := range []string{`{"results":[]}`, `{"results":[` + other + `]}`, `{"results":[` + other + `,{}]}`} {
		url, _ := answering(t, 200, wire.JSONType, body)
		results, err := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{url}, Resends: -1}).RenewAll(t.Context(), all)
		require.NoError(t, err)
		require.Len(t, results, 2)
		for _, r := range results {
			require.Error(t, r.Err)
			require.NotErrorIs(t, r.Err, lease.ErrStale)
		}
	}
}
