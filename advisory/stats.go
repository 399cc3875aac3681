package advisory

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// Stats are counters of a Locker. They only rise, except Held, Waiting, Sessions, SessionsInUse,
// MaxConns, Locks and MaxLocks. To publish them:
//
//	expvar.Publish("locks", expvar.Func(func() any { return locker.Stats() }))
type Stats struct {
	Held    int // locks held now
	Waiting int // requests that wait now

	Acquired       int64 // granted locks
	HandOvers      int64 // of these, handed off inside the process without a round trip
	Skips          int64 // DoOrSkip calls that found the key held
	ReentrantSkips int64 // DoOrSkip calls that found the key held by their own context
	Timeouts       int64 // waits that ended without the lock
	Lost           int64 // locks that ended before their release
	Unreported     int64 // losses, and releases after them, that were not reported because the Tracer or Logger was slow
	WaitSteps      int64 // wait steps at the server

	Sessions      int // connections of the lock pool
	SessionsInUse int
	MaxConns      int
	Pings         int64 // answered pings of held sessions
	SessionsLost  int64 // sessions that ended before they were given back

	Locks    int   // keys that are held or requested now
	MaxLocks int   // their limit
	Batches  int64 // statements, each of one or more tries and unlocks
}

type counters struct {
	held, waiting, acquired, handOvers, skips, reentrantSkips, timeouts, lost, unreported, waitSteps, batches, operations atomic.Int64
}

// Stats returns the current counters. They are read one after the other, so they may not
// match each other exactly.
func (l *Locker) Stats() Stats {
	c := l.core
	if c == nil {
		return Stats{}
	}
	sessions := c.source.Stats()
	inUse, locks, maxLocks := c.inUse()
	return Stats{
		Held:           int(c.stats.held.Load()),
		Waiting:        int(c.stats.waiting.Load()),
		Acquired:       c.stats.acquired.Load(),
		HandOvers:      c.stats.handOvers.Load(),
		Skips:          c.stats.skips.Load(),
		ReentrantSkips: c.stats.reentrantSkips.Load(),
		Timeouts:       c.stats.timeouts.Load(),
		Lost:           c.stats.lost.Load(),
		Unreported:     c.stats.unreported.Load(),
		WaitSteps:      c.stats.waitSteps.Load(),
		Sessions:       sessions.Open,
		SessionsInUse:  inUse,
		MaxConns:       c.config.MaxConns,
		Pings:          sessions.Pings,
		SessionsLost:   sessions.Lost,
		Locks:          locks,
		MaxLocks:       maxLocks,
		Batches:        c.stats.batches.Load(),
	}
}

// inUse counts the keys, and the connections on which a lock is held, requested or waited for.
func (c *core) inUse() (conns, locks, maxLocks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	locks, maxLocks = c.table.Used()
	if c.table.Broken() != nil { // its connections are being closed
		return 0, 0, maxLocks
	}
	for n := range c.table.Conns {
		if n.Phase() != locktable.Idle || n.Locks() > 0 {
			conns++
		}
	}
	return conns, locks, maxLocks
}

// A HeldLock describes a lock of this process.
type HeldLock struct {
	Keys    []namespace.Key
	Label   string
	Shared  bool
	Since   time.Time
	PID     uint32 // of the server session
	Waiters int    // requests of this process for its keys
	// Doubtful: the server has not answered in time. If it does not answer soon, the lock will be
	// lost.
	Doubtful bool
}

// heldPage is how many locks Held describes at a time under the mutex.
const heldPage = 256

// Held yields the locks that this process holds through the Locker, in no particular order. A
// lock that stays held from the call to the end of the iteration is yielded once. A lock that
// was released before the call is not yielded. Each description shows the state of its lock
// at the moment when the description is yielded, or shortly before.
func (l *Locker) Held() iter.Seq[HeldLock] {
	c := l.core
	return func(yield func(HeldLock) bool) {
		if c == nil {
			return
		}
		c.mu.Lock()
		all := make([]*Lock, 0, c.stats.held.Load())
		for n := range c.table.Conns {
			for k := range n.Keys {
				for _, h := range k.Holders() {
					if h.On()[0] == k { // one of several keys counts once
						all = append(all, lockOf(h))
					}
				}
			}
		}
		c.mu.Unlock()
		for page := range slices.Chunk(all, heldPage) {
			for _, h := range c.describe(page) {
				if !yield(h) {
					return
				}
			}
		}
	}
}

// describe describes those of the locks that are still held.
func (c *core) describe(locks []*Lock) []HeldLock {
	c.mu.Lock()
	defer c.mu.Unlock()
	described, now := make([]HeldLock, 0, len(locks)), time.Now()
	for _, l := range locks {
		if !l.live() {
			continue
		}
		h := HeldLock{Keys: l.Keys(), Label: l.label, Shared: l.Shared(), Since: l.since(), PID: l.PID()}
		for _, k := range l.hold.On() {
			h.Doubtful = h.Doubtful || connOf(k.Conn()).state(now) != session.Held
			h.Waiters += k.Waiting()
		}
		described = append(described, h)
	}
	return described
}

// skippedReentrant counts a DoOrSkip whose own context already held the key. It logs the first one
// of each key, because the work was skipped although nobody else does it.
func (c *core) skippedReentrant(ctx context.Context, key namespace.Key) {
	c.stats.reentrantSkips.Add(1)
	const enough = 1000
	c.mu.Lock()
	_, known := c.warned[key.Tag()]
	known = known || len(c.warned) >= enough
	if !known {
		c.warned[key.Tag()] = struct{}{}
	}
	c.mu.Unlock()
	if !known {
		background.Logger(c.config.Logger).InfoContext(ctx, "skipped a lock that the context already holds", slog.String("key", key.String()))
	}
}
