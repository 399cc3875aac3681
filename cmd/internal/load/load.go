// Package load drives a store of leases with many clients at once, and checks during the
// run whether the store keeps the promises of leases:
//
//   - at most one client has a lease of a lock at a time;
//   - the tokens of a lock rise strictly;
//   - a lease that was renewed in time is not lost, and an expired one cannot be
//     renewed or released;
//   - only the current claim can release a lease;
//   - a resource that checks tokens accepts no write of a lease that another one has
//     superseded, and refuses no write of the current lease.
//
// The checker knows only what clients see. It reports only violations that slow answers
// cannot explain. A lease counts as held from the answer that granted it until its client
// begins to release it. It counts no longer than nine tenths of its time from when the request was sent.
package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// Locks is the store to drive.
type Locks interface {
	// Acquire may wait. The client may act on the lease until the returned moment, whenever it
	// reads the answer.
	Acquire(ctx context.Context, r lease.AcquireRequest) (l lease.Lease, until time.Time, err error)
	Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error)
	Release(ctx context.Context, c lease.Claim) error
	Get(ctx context.Context, name string) (lease.Record, error)
}

// A Config configures a Load.
type Config struct {
	Locks     Locks
	Clients   int
	Names     int           // number of locks
	TTL       time.Duration // of each lease
	Hold      time.Duration // least time that a lease is held
	Heartbeat float64       // fraction of the leases that is held beyond TTL with heartbeats, 0 to 1
	Expire    float64       // fraction of the leases that is left to expire, 0 to 1

	// Unfenced makes the resource accept every write. The checker must detect that.
	Unfenced bool
}

// A Load is one run.
type Load struct {
	config  Config
	checker *checker
	meter   meter
	prefix  string
}

// New returns a Load, whose locks have unique names.
func New(c Config) *Load {
	l := &Load{config: c, prefix: fmt.Sprintf("load-%08x", rand.Uint32())}
	l.checker = newChecker(c.Names, !c.Unfenced)
	return l
}

// Run runs all clients until ctx ends or a promise is broken.
func (l *Load) Run(ctx context.Context) Report {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(l.checker.ctx, cancel)
	defer stop()
	began := time.Now()
	var all sync.WaitGroup
	for i := range l.config.Clients {
		c := &client{Load: l, name: fmt.Sprintf("client-%d", i)}
		all.Go(func() { c.run(ctx) })
	}
	all.Wait()
	return l.report(time.Since(began))
}

// Progress returns how many leases were granted and how many promises were broken so far, and the counts.
func (l *Load) Progress() (leases, violations int, c Counts) {
	l.meter.mu.Lock()
	defer l.meter.mu.Unlock()
	return int(l.meter.latencies[Acquire].Count()), len(l.checker.found()), l.meter.counts
}
