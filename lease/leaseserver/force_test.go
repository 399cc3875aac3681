package leaseserver_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

var adminAndHolder = []leaseserver.Token{{Secret: tokenOfAdmin, Name: "ops"}, {Secret: tokenOfHolder, Right: leaseserver.Hold}}

// A logBook keeps the lines of a log.
type logBook struct{ capture.Text }

// lines are those with a message.
func (l *logBook) lines(t *testing.T, message string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields))
		if fields["msg"] == message {
			all = append(all, fields)
		}
	}
	return all
}

func forceRelease(t *testing.T, client *leasehttp.Client, name string) (lease.Lease, time.Duration, error) {
	t.Helper()
	return client.ForceRelease(t.Context(), leasehttp.ForceReleaseRequest{Name: name, Reason: "its host is gone"})
}

func TestAnAdminEndsTheLeaseOfAnotherAndTheLogSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	var book logBook
	s, h := servetest.Serve(t, leaseserver.Config{Tokens: adminAndHolder, Logger: slog.New(slog.NewJSONHandler(&book, nil))})
	admin, holder := servetest.Client(t, h, leasehttp.ClientConfig{Token: tokenOfAdmin}), servetest.Client(t, h, leasehttp.ClientConfig{Token: tokenOfHolder})
	held := acquire(t, holder, servetest.Ask("job", "a"))
	next := make(chan lease.Lease, 1)
	go func() {
		l, _ := holder.AcquireWait(t.Context(), servetest.Ask("job", "b"), servetest.Bound)
		next <- l
	}()
	servetest.AwaitWaiters(t, s, 1)

	ended, delay, err := forceRelease(t, admin, "job")
	require.NoError(t, err)
	assert.Equal(t, lease.Claim{Name: "job", Holder: "a", Token: held.Token}, ended.Claim, "without its id")
	assert.Equal(t, held.ExpiresAt, ended.ExpiresAt)
	assert.Zero(t, delay)
	assert.Greater(t, (<-next).Token, held.Token, "who waits gets it")
	_, err = holder.Renew(t.Context(), lease.RenewRequest{Claim: held.Claim, TTL: time.Minute})
	require.ErrorIs(t, err, lease.ErrStale)

	lines := book.lines(t, "lease_force_released")
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0]["from"], "127.0.0.1:")
	delete(lines[0], "time")
	delete(lines[0], "from")
	assert.Equal(t, map[string]any{
		"level": "WARN", "msg": "lease_force_released", "outcome": "released", "by": "ops", "lock": "job", "owner_id": "a",
		"fencing_token": float64(held.Token), "reason": "its host is gone", "lock_delay_ms": 0.0,
	}, lines[0])
	assert.NotContains(t, book.String(), held.ID)
	assert.NotContains(t, book.String(), tokenOfAdmin)
	assert.Equal(t, 1.0, servetest.Metric(t, s, "lock_force_release_total", "success"))
}

func TestOnlyATokenWithTheRightAdminEndsTheLeaseOfAnother(t *testing.T) {
	t.Parallel()
	everybody := func(*http.Request) error { return nil }
	for what, c := range map[string]struct {
		config leaseserver.Config
		token  string
	}{
		"hold":                     {leaseserver.Config{Tokens: tokensOfAll}, tokenOfHolder},
		"read":                     {leaseserver.Config{Tokens: tokensOfAll}, tokenOfReader},
		"metrics":                  {leaseserver.Config{Tokens: tokensOfAll}, tokenOfMetrics},
		"admin of other locks":     {leaseserver.Config{Tokens: tokensOfAll}, tokenOfJobs},
		"whom Authorize lets pass": {leaseserver.Config{Authorize: everybody}, tokenOfAdmin},
		"a server without tokens":  {leaseserver.Config{}, ""},
		"one for everybody":        {leaseserver.Config{AllowInsecure: true}, ""},
	} {
		c.config.Store = leasetest.NewStore()
		held := acquire(t, c.config.Store, servetest.Ask("job", "a"))
		_, h := servetest.Serve(t, c.config)
		got := send(t, h, http.MethodPost, "/v1/locks/job/force-release", `{"reason":"x","fencing_token":1}`, "Authorization", "Bearer "+c.token)
		assert.Equal(t, http.StatusForbidden, got.status, "%s: %s", what, got.body)
		_, err := c.config.Store.Renew(t.Context(), lease.RenewRequest{Claim: held.Claim, TTL: time.Minute})
		require.NoError(t, err, what)
	}
}

// noHandOver is a store that can do only what each can.
type noHandOver struct{ lease.Store }

func TestAForcedReleaseKeepsTheLockForItsLockDelay(t *testing.T) {
	t.Parallel()
	for _, store := range []lease.Store{leasetest.NewStore(), noHandOver{leasetest.NewStore()}} {
		s, h := servetest.Serve(t, leaseserver.Config{Store: store, Tokens: adminAndHolder, PollInterval: -1})
		admin, holder := servetest.Client(t, h, leasehttp.ClientConfig{Token: tokenOfAdmin}), servetest.Client(t, h, leasehttp.ClientConfig{Token: tokenOfHolder})
		request := servetest.Ask("job", "a")
		request.LockDelay = 10 * time.Minute
		held := acquire(t, holder, request)
		next := make(chan lease.Lease, 1)
		go func() {
			l, _ := holder.AcquireWait(t.Context(), servetest.Ask("job", "b"), servetest.Bound)
			next <- l
		}()
		awaitStanding(t, s, "job") // else it can come between a release and the lease for the delay

		_, delay, err := forceRelease(t, admin, "job")
		require.NoError(t, err)
		assert.InDelta(t, request.LockDelay, delay, float64(servetest.Bound))
		_, err = holder.Renew(t.Context(), lease.RenewRequest{Claim: held.Claim, TTL: time.Minute})
		require.ErrorIs(t, err, lease.ErrStale)
		_, err = holder.Acquire(t.Context(), servetest.Ask("job", "c"))
		kept, ok := errors.AsType[*lease.HeldError](err)
		require.True(t, ok, err)
		assert.InDelta(t, request.LockDelay, kept.Remaining, float64(servetest.Bound))
		assert.Equal(t, "pglatch: delay after a forced release", kept.Holder)

		_, _, err = forceRelease(t, admin, "job")
		require.ErrorIs(t, err, lease.ErrHeld, "the delay is not ended by accident")
		got := send(t, h, http.MethodPost, "/v1/locks/job/force-release", `{"reason":"x"}`, "Authorization", "Bearer "+tokenOfAdmin)
		assert.Equal(t, http.StatusConflict, got.status, got.body)
		record := recordOf(t, admin, "job")
		assert.Equal(t, map[string]string{"reason": "its host is gone", "by": "ops", "owner_id": "a", "fencing_token": fmt.Sprint(held.Token)}, record.Metadata)
		_, _, err = admin.ForceRelease(t.Context(), leasehttp.ForceReleaseRequest{Name: "job", Reason: "it is dead indeed", Token: record.Token})
		require.NoError(t, err)
		assert.Greater(t, (<-next).Token, record.Token, "who waited all the time gets it then")
	}
}

// As a client does whose first answer was lost.
func TestAForcedReleaseThatIsSentAgainIsAnsweredAsBefore(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, 10 * time.Minute} {
		_, h := servetest.Serve(t, leaseserver.Config{Tokens: adminAndHolder})
		admin := servetest.Client(t, h, leasehttp.ClientConfig{Token: tokenOfAdmin})
		request := servetest.Ask("job", "a")
		request.LockDelay, request.Metadata = delay, map[string]string{"host": "x"}
		held := acquire(t, admin, request)
		var kept uint64
		for range 3 {
			ended, still, err := admin.ForceRelease(t.Context(), leasehttp.ForceReleaseRequest{Name: "job", Reason: "x", Token: held.Token})
			require.NoError(t, err)
			assert.Equal(t, lease.Claim{Name: "job", Holder: "a", Token: held.Token}, ended.Claim)
			assert.InDelta(t, delay, still, float64(servetest.Bound))
			record := recordOf(t, admin, "job")
			assert.Equal(t, cmp.Or(kept, record.Token), record.Token)
			kept = record.Token
		}
		_, _, err := admin.ForceRelease(t.Context(), leasehttp.ForceReleaseRequest{Name: "job", Reason: "x", Token: held.Token + 7})
		require.ErrorIs(t, err, lease.ErrStale)
		if delay == 0 {
			continue
		}
		_, _, err = admin.ForceRelease(t.Context(), leasehttp.ForceReleaseRequest{Name: "job", Reason: "x", Token: kept})
		require.NoError(t, err, "the delay ends if it is named")
		acquire(t, admin, servetest.Ask("job", "b"))
		_, _, err = admin.ForceRelease(t.Context(), leasehttp.ForceReleaseRequest{Name: "job", Reason: "x", Token: held.Token})
		require.ErrorIs(t, err, lease.ErrStale, "there is another lease")
	}
}

func TestAForcedReleaseDoesNotShortenAMinHold(t *testing.T) {
	t.Parallel()
	_, h := servetest.Serve(t, leaseserver.Config{Tokens: adminAndHolder})
	admin := servetest.Client(t, h, leasehttp.ClientConfig{Token: tokenOfAdmin})
	for name, r := range map[string]lease.AcquireRequest{
		"longer":  {TTL: time.Minute, MinHold: 10 * time.Minute},
		"shorter": {TTL: time.Hour, MinHold: 10 * time.Minute},
	} {
		r.Name, r.Holder = name, "a"
		acquire(t, admin, r)
		_, delay, err := forceRelease(t, admin, name)
		require.NoError(t, err)
		if name == "longer" {
			assert.InDelta(t, 10*time.Minute, delay, float64(servetest.Bound))
		}
		_, err = admin.Acquire(t.Context(), servetest.Ask(name, "b"))
		require.ErrorIs(t, err, lease.ErrHeld)
	}
}

// A racingStore lets something happen between the Get and the end of a lease.
type racingStore struct {
	lease.Store
	lease.HandOverer

	afterGet func()
}

func (s *racingStore) Get(ctx context.Context, name string) (lease.Record, error) {
	r, err := s.Store.Get(ctx, name)
	s.afterGet()
	return r, err
}

func TestAForcedReleaseEndsNoSuccessor(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, time.Hour} {
		for _, canHandOver := range []bool{true, false} {
			memory := leasetest.NewStore()
			s := &racingStore{Store: memory, HandOverer: memory}
			config := leaseserver.Config{Store: s, Tokens: adminAndHolder}
			if !canHandOver {
				config.Store = noHandOver{s}
			}
			_, h := servetest.Serve(t, config)
			request := servetest.Ask("job", "a")
			request.LockDelay = delay
			held := acquire(t, memory, request)
			var successor lease.Lease
			s.afterGet = func() {
				require.NoError(t, memory.Release(t.Context(), held.Claim))
				successor = acquire(t, memory, servetest.Ask("job", "b"))
			}
			got := send(t, h, http.MethodPost, "/v1/locks/job/force-release", `{"reason":"x"}`, "Authorization", "Bearer "+tokenOfAdmin)
			assert.Equal(t, http.StatusConflict, got.status, got.body)
			assert.Contains(t, got.body, "lease-stale")
			_, err := memory.Renew(t.Context(), lease.RenewRequest{Claim: successor.Claim, TTL: time.Minute})
			require.NoError(t, err)

			s.afterGet = func() {}
			got = send(t, h, http.MethodPost, "/v1/locks/job/force-release", fmt.Sprintf(`{"reason":"x","fencing_token":%d}`, held.Token), "Authorization", "Bearer "+tokenOfAdmin)
			assert.Equal(t, http.StatusConflict, got.status, got.body)
			got = send(t, h, http.MethodPost, "/v1/locks/job/force-release", `{"reason":"x","lease_id":"`+held.ID+`"}`, "Authorization", "Bearer "+tokenOfAdmin)
			assert.Equal(t, http.StatusConflict, got.status, got.body)

			s.afterGet = func() { require.NoError(t, memory.Release(t.Context(), successor.Claim)) }
			_ = send(t, h, http.MethodPost, "/v1/locks/job/force-release", `{"reason":"x"}`, "Authorization", "Bearer "+tokenOfAdmin)
			_, err = memory.Acquire(t.Context(), servetest.Ask("job", "c"))
			require.NoError(t, err, "a lock whose holder released it is not kept")
		}
	}
}

func TestAHolderWhoReleasesFirstLeavesNoDelayBehind(t *testing.T) {
	t.Parallel()
	memory := leasetest.NewStore()
	s := &racingStore{Store: memory, HandOverer: memory}
	_, h := servetest.Serve(t, leaseserver.Config{Store: s, Tokens: adminAndHolder})
	request := servetest.Ask("job", "a")
	request.LockDelay = time.Hour
	held := acquire(t, memory, request)
	s.afterGet = func() {
		require.NoError(t, memory.Release(t.Context(), held.Claim))
		next := acquire(t, memory, servetest.Ask("job", "b"))
		require.NoError(t, memory.Release(t.Context(), next.Claim))
	}
	got := send(t, h, http.MethodPost, "/v1/locks/job/force-release", `{"reason":"x"}`, "Authorization", "Bearer "+tokenOfAdmin)
	assert.Equal(t, http.StatusConflict, got.status, got.body)
	acquire(t, memory, servetest.Ask("job", "c"))
}

func TestAForcedReleaseNeedsAReasonAndALease(t *testing.T) {
	t.Parallel()
	s, h := servetest.Serve(t, leaseserver.Config{Tokens: adminAndHolder})
	admin := servetest.Client(t, h, leasehttp.ClientConfig{Token: tokenOfAdmin})
	l := acquire(t, admin, servetest.Ask("released", "a"))
	require.NoError(t, admin.Release(t.Context(), l.Claim))
	d := readDocument(t, send(t, h, http.MethodGet, "/v1/openapi.json", "").body)
	for _, c := range []struct {
		lock, body string
		status     int
		says       string
	}{
		{"released", `{}`, 400, "reason is empty"},
		{"released", `{"reason":" "}`, 400, "reason is empty"},
		{"released", `{"reason":"a\nb"}`, 400, "control characters"},
		{"released", `{"reason":"` + strings.Repeat("x", 513) + `"}`, 400, "use at most 512"},
		{"released", `{"reason":"x","force":true}`, 400, "unknown field"},
		{"released", `{"reason":"x"}`, 409, `"released":true`},
		{"released", fmt.Sprintf(`{"reason":"x","fencing_token":%d}`, l.Token), 200, `"owner_id":"a"`},
		{"released", fmt.Sprintf(`{"reason":"x","fencing_token":%d}`, l.Token+1), 409, "lease-stale"},
		{"unknown", `{"reason":"x"}`, 404, "lock-not-found"},
		{"released", `{"reason":"x","fencing_token":-1}`, 422, "out-of-range"},
	} {
		got := send(t, h, http.MethodPost, "/v1/locks/"+c.lock+"/force-release", c.body, "Authorization", "Bearer "+tokenOfAdmin)
		assert.Equal(t, c.status, got.status, "%s: %s", c.body, got.body)
		assert.Contains(t, got.body, c.says)
		d.checkAnswer(t, "/v1/locks/{lock}/force-release", http.MethodPost, got)
	}
	for token, status := range map[string]int{"": 401, tokenOfHolder: 403} {
		got := send(t, h, http.MethodPost, "/v1/locks/released/force-release", `{"reason":"x"}`, "Authorization", "Bearer "+token)
		assert.Equal(t, status, got.status, got.body)
		d.checkAnswer(t, "/v1/locks/{lock}/force-release", http.MethodPost, got)
	}
	assert.Equal(t, 3.0, servetest.Metric(t, s, "lock_force_release_total", "refused"))
}

func TestForcedReleasesRaceWithHoldersAndEndOnlyWhatTheyName(t *testing.T) {
	t.Parallel()
	var book logBook
	_, h := servetest.Serve(t, leaseserver.Config{Tokens: adminAndHolder, Logger: slog.New(slog.NewJSONHandler(&book, nil))})
	admin, holder := servetest.Client(t, h, leasehttp.ClientConfig{Token: tokenOfAdmin}), servetest.Client(t, h, leasehttp.ClientConfig{Token: tokenOfHolder})
	lost := make(map[uint64]bool) // tokens whose holder was told that it had lost the lease
	var mu sync.Mutex
	var work, admins sync.WaitGroup
	over := make(chan struct{})
	for worker := range 3 {
		work.Go(func() {
			for i := range 40 {
				l, err := holder.AcquireWait(t.Context(), servetest.Ask("job", fmt.Sprint("w", worker)), servetest.Bound)
				if !assert.NoError(t, err) {
					return
				}
				var renewed error
				for again := true; again && t.Context().Err() == nil; again = i == 0 && renewed == nil { // the first lease until it is ended
					_, renewed = holder.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Hour})
				}
				released := holder.Release(t.Context(), l.Claim)
				if renewed != nil || released != nil {
					mu.Lock()
					lost[l.Token] = true
					mu.Unlock()
				}
			}
		})
	}
	for range 2 {
		admins.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					_, _, _ = forceRelease(t, admin, "job")
				}
			}
		})
	}
	work.Wait()
	close(over)
	admins.Wait()
	ended := make(map[uint64]int)
	for _, line := range book.lines(t, "lease_force_released") {
		if line["outcome"] == "released" {
			ended[uint64(line["fencing_token"].(float64))]++
		}
	}
	for token := range lost {
		assert.Positive(t, ended[token], "the lease with token %d was lost, and nobody ended it", token)
	}
	assert.GreaterOrEqual(t, len(ended), 3)
}
