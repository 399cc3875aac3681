// Package sharetest is the conformance suite for shares of locks on every store.
package sharetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/shared"
)

// A Harness sets how to test shares of locks.
type Harness struct {
	// New creates an empty store, and registers its end with t.Cleanup.
	New func(t *testing.T) lease.Store

	// TTL is the TTL of leases that the suite lets expire.
	TTL time.Duration
}

const (
	long  = time.Hour
	bound = time.Minute // for short events
)

// Run runs the suite.
func Run(t *testing.T, h Harness) { //nolint:thelper // it is the test
	for name, run := range map[string]func(*suite){
		"n slots are for n holders":                                testSlots,
		"a request for fewer slots counts all that are taken":      testNumbers,
		"a writer is alone, and keeps readers out while it waits":  testExclusive,
		"the end of a reader's lease lets a writer in":             testExpiry,
		"a request that is sent again gets what it had got":        testIdempotency,
		"a request that died at the gate keeps it for a while":     testAbandonedGate,
		"the terms of a writer's lease begin with the lease":       testTerms,
		"the fence rises over slots and writers":                   testFence,
		"who waits gets the slot that is released":                 testWaiting,
		"a crowd is never too many, and no reader beside a writer": testCrowd,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := h.New(t)
			s := &suite{T: t, store: store, ttl: h.TTL}
			s.locker = s.newLocker(bound) // a request that this machine delays keeps the gate
			run(s)
		})
	}
}

type suite struct {
	*testing.T
	store  lease.Store
	locker *shared.Locker
	ttl    time.Duration
}

func (s *suite) newLocker(gateTTL time.Duration) *shared.Locker {
	s.Helper()
	l, err := shared.New(shared.Config{Store: s.store, GateTTL: gateTTL, PollInterval: 20 * time.Millisecond})
	require.NoError(s, err)
	return l
}

func ask(holder string, slots int) shared.Request {
	return shared.Request{AcquireRequest: lease.AcquireRequest{Name: "job", Holder: holder, TTL: long}, Slots: slots}
}

func alone(holder string) shared.Request {
	r := ask(holder, 0)
	r.Exclusive = true
	return r
}

func (s *suite) acquire(r shared.Request) shared.Share {
	s.Helper()
	share, err := s.locker.Acquire(s.Context(), r, bound)
	require.NoError(s, err)
	return share
}

func (s *suite) refused(r shared.Request) lease.HeldError {
	s.Helper()
	share, err := s.locker.Acquire(s.Context(), r, 0)
	var held *lease.HeldError
	require.ErrorAs(s, err, &held, "%+v", share)
	assert.Equal(s, "job", held.Name)
	assert.Positive(s, held.Remaining)
	assert.Positive(s, held.Retry)
	return *held
}

func (s *suite) release(share shared.Share) {
	s.Helper()
	require.NoError(s, s.store.Release(s.Context(), share.Claim))
}

// later acquires on another goroutine.
func (s *suite) later(r shared.Request) <-chan shared.Share {
	got := make(chan shared.Share, 1)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	wg.Go(func() {
		if share, err := s.locker.Acquire(ctx, r, bound); err == nil {
			got <- share
		}
	})
	s.Cleanup(func() { cancel(); wg.Wait() })
	return got
}

func (s *suite) await(got <-chan shared.Share) shared.Share {
	s.Helper()
	return await.Receive(s, bound, got, "it never gets the lock")
}

// awaitGate waits until a request keeps the gate for the whole lock.
func (s *suite) awaitGate() {
	s.Helper()
	await.Until(s, bound, func() bool {
		r, err := s.store.Get(s.Context(), shared.SlotName("job", 0))
		return err == nil && r.State == lease.Held && r.Metadata["pglatch.mode"] == "exclusive"
	})
}

func testSlots(s *suite) {
	for i, holder := range []string{"a", "b", "c"} {
		share := s.acquire(ask(holder, 3))
		assert.Equal(s, i+1, share.Slot)
		assert.Equal(s, "job", share.Lock)
		assert.Equal(s, shared.SlotName("job", i+1), share.Name)
	}
	held := s.refused(ask("d", 3))
	assert.NotEmpty(s, held.Holder)
	holders, err := s.locker.Holders(s.Context(), "job")
	require.NoError(s, err)
	require.Len(s, holders, 3)
	assert.Equal(s, "b", holders[1].Holder)
	require.NoError(s, s.store.Release(s.Context(), lease.Claim{Name: holders[1].Name, Holder: "b", ID: holders[1].ID, Token: holders[1].Token}))
	assert.Equal(s, 2, s.acquire(ask("d", 3)).Slot)
	s.refused(ask("e", 3))
}

func testNumbers(s *suite) {
	first := s.acquire(ask("a", 3))
	s.acquire(ask("b", 3))
	s.acquire(ask("c", 3))
	s.release(first)
	s.refused(ask("d", 2)) // slot 1 is free, but two are taken
	s.refused(ask("d", 1))
	s.acquire(ask("d", 3))
	s.acquire(ask("e", 4))
	s.refused(ask("f", 4))
}

func testExclusive(s *suite) {
	reader := s.acquire(ask("reader", 0))
	assert.Equal(s, "reader", s.refused(alone("writer")).Holder)
	writer := s.later(alone("writer"))
	s.awaitGate()
	s.refused(ask("late", 0))
	s.refused(alone("another"))
	s.release(reader)
	share := s.await(writer)
	assert.Zero(s, share.Slot)
	s.refused(ask("late", 0))
	s.refused(alone("another"))
	s.release(share)
	s.release(s.acquire(ask("late", 0)))
	s.release(s.acquire(alone("another")))
}

func testExpiry(s *suite) {
	r := ask("reader", 0)
	r.TTL = s.ttl
	reader := s.acquire(r)
	writer := s.acquire(alone("writer"))
	assert.Greater(s, writer.Fence, reader.Fence)
	_, err := s.store.Renew(s.Context(), lease.RenewRequest{Claim: reader.Claim, TTL: long})
	assert.Error(s, err)
}

func testIdempotency(s *suite) {
	other := s.acquire(ask("other", 3))
	r := ask("a", 3)
	r.IdempotencyKey = "k"
	first := s.acquire(r)
	assert.Equal(s, 2, first.Slot)
	s.release(other)
	again := s.acquire(r) // a lower slot is free
	assert.Equal(s, first.Claim, again.Claim)
	s.acquire(ask("b", 3))
	s.acquire(ask("c", 3))
	again, err := s.locker.Acquire(s.Context(), r, 0) // no slot is free
	require.NoError(s, err)
	assert.Equal(s, first.Claim, again.Claim)

	w := alone("a")
	w.Name, w.IdempotencyKey = "other", "k"
	whole := s.acquire(w)
	assert.Equal(s, whole.Claim, s.acquire(w).Claim)
}

func testAbandonedGate(s *suite) {
	_, err := s.store.Acquire(s.Context(), lease.AcquireRequest{Name: shared.SlotName("job", 0), Holder: "dead", TTL: s.ttl})
	require.NoError(s, err)
	assert.Equal(s, 1, s.acquire(ask("a", 1)).Slot)
}

func testTerms(s *suite) {
	reader := s.acquire(ask("reader", 0))
	w := alone("writer")
	w.LockDelay, w.MaxLifetime, w.Metadata = long, 2*long, map[string]string{"a": "b"}
	writer := s.later(w)
	s.awaitGate()
	gate, err := s.store.Get(s.Context(), shared.SlotName("job", 0))
	require.NoError(s, err)
	assert.Less(s, gate.AvailableIn, long)
	s.release(reader)
	share := s.await(writer)
	assert.Equal(s, "b", share.Metadata["a"])
	assert.Greater(s, share.Fence, reader.Fence)
	held := s.refused(ask("late", 0))
	assert.Greater(s, held.Remaining, long)
	s.release(share)
	s.release(s.acquire(ask("late", 0)))
}

func testFence(s *suite) {
	var last uint64
	for _, r := range []shared.Request{ask("a", 2), ask("b", 2)} {
		share := s.acquire(r)
		assert.Greater(s, share.Fence, last)
		last = share.Fence
		defer s.release(share)
	}
	for range 2 {
		r := alone("w")
		r.Name = "other"
		writer := s.acquire(r)
		r = ask("r", 0)
		r.Name = "other"
		s.release(writer)
		reader := s.acquire(r)
		assert.Greater(s, reader.Fence, writer.Fence)
		s.release(reader)
	}
}

func testWaiting(s *suite) {
	a, b := s.acquire(ask("a", 2)), s.acquire(ask("b", 2))
	waiting := s.later(ask("c", 2))
	s.release(b)
	assert.Equal(s, b.Slot, s.await(waiting).Slot)
	s.release(a)
}
