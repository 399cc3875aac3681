// Package load drives a store of leases with many clients at once, and checks while
// it runs whether the store keeps what leases promise:
//
//   - at most one client has a lease of a lock at a time;
//   - the tokens of a lock rise strictly;
//   - a lease that was renewed in time is not lost, one whose time is over cannot be
//     renewed or released;
//   - nobody can release a lease with a claim that is not the current one;
//   - a resource that checks tokens accepts no write of a lease that another has
//     superseded, and refuses none of the current one.
//
// The checker knows only what clients see, and reports only what cannot be
// explained by answers that were slow: a lease is taken for held from the answer
// that granted it until its client begins to release it or nine tenths of its time
// have passed since the request was sent.
package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// Locks is what is driven.
type Locks interface {
	// Acquire may wait. Until a moment the lease may be acted on, whenever the answer is
	// read.
	Acquire(ctx context.Context, r lease.AcquireRequest) (l lease.Lease, until time.Time, err error)
	Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error)
	Release(ctx context.Context, c lease.Claim) error
	Get(ctx context.Context, name string) (lease.Record, error)
}

// A Config says what to do.
type Config struct {
	Locks     Locks
	Clients   int
	Names     int           // how many locks there are
	TTL       time.Duration // of each lease
	Hold      time.Duration // how long a lease is held at least
	Heartbeat float64       // part of the leases that is held beyond TTL with heartbeats, 0 to 1
	Expire    float64       // part of the leases that is left to expire, 0 to 1

	// Unfenced makes the resource accept every write: the checker must notice.
	Unfenced bool
}

// A Load is one run.
type Load struct {
	config  Config
	checker *checker
	meters  []*meter // one for each client
	prefix  string
}

// New returns a Load. The names of its locks are its own.
func New(c Config) *Load {
	l := &Load{config: c, prefix: fmt.Sprintf("load-%08x", rand.Uint32())}
	l.checker = newChecker(c.Names, !c.Unfenced)
	for range c.Clients {
		l.meters = append(l.meters, newMeter())
	}
	return l
}

// Run runs all clients until ctx ends, or a promise was broken.
func (l *Load) Run(ctx context.Context) Report {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(l.checker.ctx, cancel)
	defer stop()
	began := time.Now()
	var all sync.WaitGroup
	for i, m := range l.meters {
		c := &client{Load: l, meter: m, name: fmt.Sprintf("client-%d", i)}
		all.Go(func() { c.run(ctx) })
	}
	all.Wait()
	return l.report(time.Since(began))
}

// Progress returns what was done so far.
func (l *Load) Progress() Progress {
	p := Progress{Violations: len(l.checker.found())}
	for _, m := range l.meters {
		m.mu.Lock()
		p.Leases += m.latencies[Acquire].Count()
		p.Expired += m.counts[Expired]
		p.Held += m.counts[Held]
		p.Errors += m.counts[Busy] + m.counts[Failed]
		m.mu.Unlock()
	}
	return p
}

// A Progress counts.
type Progress struct {
	Leases, Expired, Held, Errors int
	Violations                    int
}
