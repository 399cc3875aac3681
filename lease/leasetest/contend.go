package leasetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

// A Contention is a group of clients that compete for a few names. They acquire leases
// (sometimes twice, with one idempotency key), renew, release, and release again. Or they let
// their leases expire, and then try to renew and release them.
type Contention struct {
	Clients    int           // concurrent; 0 = 50
	Names      int           // 0 = 3: contended-0, contended-1, …
	Operations int           // of each client, at least; 0 = 60
	Overlap    int           // maximum concurrent calls on one name: the cost of the check grows steeply with it; 0 = 8
	TTL        time.Duration // the longest; 0 = 60 ms
	Sweep      bool          // sweep all the time, with a retention that forgets names at once
}

// Run returns when all clients are done, or ctx has ended. store returns a client's store, which
// usually records in a History.
func (c Contention) Run(ctx context.Context, store func(client int) lease.Store) {
	c.Clients = cmp.Or(c.Clients, 50)
	c.Names = cmp.Or(c.Names, 3)
	c.Operations = cmp.Or(c.Operations, 60)
	c.Overlap = cmp.Or(c.Overlap, 8)
	c.TTL = max(cmp.Or(c.TTL, 60*time.Millisecond), 2*lease.MinTTL)
	rooms := make([]chan struct{}, c.Names)
	for i := range rooms {
		rooms[i] = make(chan struct{}, c.Overlap)
	}
	fighting, end := context.WithCancel(ctx)
	var clients, sweeper sync.WaitGroup
	for i := range c.Clients {
		clients.Go(func() {
			f := fighter{Contention: c, store: store(i), holder: "client-" + strconv.Itoa(i), rooms: rooms}
			for f.done < c.Operations && fighting.Err() == nil {
				f.turn(fighting)
			}
		})
	}
	if c.Sweep {
		s := store(c.Clients)
		sweeper.Go(func() {
			for pause.For(fighting, 10*time.Millisecond) == nil {
				_, _ = s.Sweep(fighting, lease.SweepRequest{Retention: time.Nanosecond})
			}
		})
	}
	clients.Wait()
	end()
	sweeper.Wait()
}

// A fighter is one client.
type fighter struct {
	Contention
	store  lease.Store
	holder string
	rooms  []chan struct{} // for calls, by name
	room   chan struct{}   // the one of the present name
	done   int             // operations
}

func (f *fighter) ttl() time.Duration { return lease.MinTTL + rand.N(f.TTL-lease.MinTTL) }

// turn tries to get a lease, and performs one of the usual client actions.
func (f *fighter) turn(ctx context.Context) {
	name := rand.N(f.Names)
	f.room = f.rooms[name]
	r := lease.AcquireRequest{Name: fmt.Sprintf("contended-%d", name), Holder: f.holder, TTL: f.ttl()}
	if rand.N(2) == 0 {
		r.IdempotencyKey = f.holder + "-" + strconv.Itoa(f.done)
	}
	l, err := f.acquire(ctx, r)
	if err != nil {
		wait := f.TTL / 4
		if held := (*lease.HeldError)(nil); errors.As(err, &held) {
			wait = min(wait, held.Retry)
		}
		_ = pause.For(ctx, wait)
		return
	}
	if r.IdempotencyKey != "" && rand.N(2) == 0 {
		_, _ = f.acquire(ctx, r)
	}
	for rand.N(2) == 0 {
		_ = pause.For(ctx, rand.N(f.TTL/4))
		f.renew(ctx, l.Claim)
	}
	if rand.N(3) == 0 { // the induced expiry
		_ = pause.For(ctx, l.Remaining+rand.N(f.TTL/4))
		f.renew(ctx, l.Claim)
	}
	for range 1 + rand.N(2) {
		f.call(func() { _ = f.store.Release(ctx, l.Claim) })
	}
}

func (f *fighter) acquire(ctx context.Context, r lease.AcquireRequest) (l lease.Lease, err error) {
	f.call(func() { l, err = f.store.Acquire(ctx, r) })
	return l, err
}

func (f *fighter) renew(ctx context.Context, c lease.Claim) {
	f.call(func() { _, _ = f.store.Renew(ctx, lease.RenewRequest{Claim: c, TTL: f.ttl()}) })
}

func (f *fighter) call(operation func()) {
	f.done++
	f.room <- struct{}{}
	defer func() { <-f.room }()
	operation()
}
