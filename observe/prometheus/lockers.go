package prometheus

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pglatch/pglatch/advisory"
)

// A lockers holds the open Lockers, and the counters of the closed ones.
type lockers struct {
	mu     sync.Mutex
	open   map[*advisory.Locker]struct{}
	before advisory.Stats
}

var (
	locksHeld  = gauge("pglatch_locks_held", "Locks that are held now. A lock on several keys counts in the namespace of its first key.", "namespace")
	oldestHold = gauge("pglatch_lock_oldest_hold_seconds", "Age of the oldest lock that is held now, 0 without locks.", "namespace")
	waiters    = gauge("pglatch_lock_waiters", "Requests that wait for a lock now.", "namespace")
	oldestWait = gauge("pglatch_lock_oldest_wait_seconds", "Age of the oldest request that waits now, 0 without requests.", "namespace")
)

// ofStats are the numbers from Stats.
var ofStats = []struct {
	number
	of func(*advisory.Stats) float64
}{
	{gauge("pglatch_lock_sessions", "Connections of the lock pools."), func(s *advisory.Stats) float64 { return float64(s.Sessions) }},
	{gauge("pglatch_lock_sessions_in_use", "Connections of the lock pools on which locks are held, requested or waited for."), func(s *advisory.Stats) float64 { return float64(s.SessionsInUse) }},
	{gauge("pglatch_lock_sessions_max", "Connections that the lock pools may have, MaxConns."), func(s *advisory.Stats) float64 { return float64(s.MaxConns) }},
	{total("pglatch_lock_sessions_lost_total", "Connections of the lock pools that ended before they were returned."), func(s *advisory.Stats) float64 { return float64(s.SessionsLost) }},
	{total("pglatch_lock_pings_total", "Answered pings of held sessions."), func(s *advisory.Stats) float64 { return float64(s.Pings) }},
	{total("pglatch_lock_statements_total", "Statements that tried or released locks, each one lock or more."), func(s *advisory.Stats) float64 { return float64(s.Batches) }},
	{total("pglatch_lock_wait_steps_total", "Wait steps at the server."), func(s *advisory.Stats) float64 { return float64(s.WaitSteps) }},
	{total("pglatch_lock_skips_total", "DoOrSkip calls that found the key held."), func(s *advisory.Stats) float64 { return float64(s.Skips) }},
	{total("pglatch_lock_reentrant_skips_total", "DoOrSkip calls that found the key held by their own context."), func(s *advisory.Stats) float64 { return float64(s.ReentrantSkips) }},
	{total("pglatch_lock_unreported_total", "Losses, and releases after them, that a slow Tracer or Logger did not receive."), func(s *advisory.Stats) float64 { return float64(s.Unreported) }},
	{gauge("pglatch_lock_keys", "Entries of the server's lock table that Lockers hold or request."), func(s *advisory.Stats) float64 { return float64(s.Locks) }},
	{gauge("pglatch_lock_keys_max", "Limit of pglatch_lock_keys: MaxLocks, or MaxConns if each lock has its own connection."), func(s *advisory.Stats) float64 { return float64(s.MaxLocks) }},
}

func (*locks) numbers() []number {
	all := []number{locksHeld, oldestHold, waiters, oldestWait}
	for _, n := range ofStats {
		all = append(all, n.number)
	}
	return all
}

// opened adds a Locker.
func (l *locks) opened(locker *advisory.Locker) (closed func()) {
	ls := &l.lockers
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.open[locker] = struct{}{}
	return func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		delete(ls.open, locker)
		s := locker.Stats()
		ls.before.Pings += s.Pings // only the counters: a counter may not fall
		ls.before.Batches += s.Batches
		ls.before.WaitSteps += s.WaitSteps
		ls.before.Skips += s.Skips
		ls.before.ReentrantSkips += s.ReentrantSkips
		ls.before.Unreported += s.Unreported
		ls.before.SessionsLost += s.SessionsLost
	}
}

// now returns the open Lockers, and the sum of all.
func (ls *lockers) now() (open []*advisory.Locker, sum advisory.Stats) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	sum = ls.before
	for l := range ls.open {
		open = append(open, l)
		s := l.Stats()
		sum.Sessions += s.Sessions
		sum.SessionsInUse += s.SessionsInUse
		sum.MaxConns += s.MaxConns
		sum.SessionsLost += s.SessionsLost
		sum.Pings += s.Pings
		sum.Batches += s.Batches
		sum.WaitSteps += s.WaitSteps
		sum.Skips += s.Skips
		sum.ReentrantSkips += s.ReentrantSkips
		sum.Unreported += s.Unreported
		sum.Locks += s.Locks
		if s.MaxLocks == 0 {
			s.MaxLocks = s.MaxConns
		}
		sum.MaxLocks += s.MaxLocks
	}
	return open, sum
}

// A tally counts the locks, or requests, of a namespace.
type tally struct {
	number int
	oldest time.Duration
}

func (t *tally) add(age time.Duration) {
	t.number++
	t.oldest = max(t.oldest, age)
}

func (l *locks) collectLockers(to chan<- prometheus.Metric) {
	open, sum := l.lockers.now()
	tallies := make(map[*space]*tally)
	for _, locker := range open {
		for h := range locker.Held() {
			l.tally(tallies, l.of(h.Keys[0])).add(time.Since(h.Since))
		}
	}
	l.send(to, tallies, locksHeld, oldestHold)
	for _, n := range ofStats {
		n.send(to, n.of(&sum))
	}
}

func (l *locks) collectWaits(to chan<- prometheus.Metric) {
	tallies := make(map[*space]*tally)
	for _, value := range l.waiting.Range {
		w := value.(*wait)
		l.tally(tallies, w.in).add(time.Since(w.since))
	}
	l.send(to, tallies, waiters, oldestWait)
}

func (*locks) tally(all map[*space]*tally, of *space) *tally {
	t := all[of]
	if t == nil {
		t = new(tally)
		all[of] = t
	}
	return t
}

// send sends the tallies of all namespaces that were ever requested, including empty ones.
func (l *locks) send(to chan<- prometheus.Metric, tallies map[*space]*tally, count, oldest number) {
	for _, value := range l.spaces.Range {
		s := value.(*space)
		t := l.tally(tallies, s)
		count.send(to, float64(t.number), s.name)
		oldest.send(to, t.oldest.Seconds(), s.name)
	}
}
