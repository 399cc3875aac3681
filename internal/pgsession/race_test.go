package pgsession

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/soak"
)

func format(pid uint32) string { return strconv.FormatUint(uint64(pid), 10) }

// A contender acquires the contended lock in some way and gives it back.
type contender interface {
	pid() uint32
	acquire(t *testing.T, c cell) (held bool)
	cancel()
	release(t *testing.T, held bool)
}

// A cell is one kind of end of a wait that races the grant.
type cell struct {
	name  string
	limit time.Duration // of the wait
	end   time.Duration // when the wait ends, unless the lock is granted
	try   bool          // no wait, but a try
	batch bool          // in the middle of a batch
	many  bool          // beside many locks
	cut   func(c contender, admin bystander)
}

var (
	byAdmin  = func(c contender, admin bystander) { admin.cancel(c.pid()) }
	byClient = func(c contender, _ bystander) { c.cancel() }
)

var cells = []cell{
	{name: "timeout on wait", limit: 4 * time.Millisecond, end: 4 * time.Millisecond},
	{name: "pg_cancel_backend on wait", limit: time.Second, end: 3 * time.Millisecond, cut: byAdmin},
	{name: "cancel request on wait", limit: time.Second, end: 3 * time.Millisecond, cut: byClient},
	{name: "pg_cancel_backend on try", end: 400 * time.Microsecond, try: true, cut: byAdmin},
	{name: "pg_cancel_backend on batch", end: 400 * time.Microsecond, try: true, batch: true, cut: byAdmin},
	{name: "pg_cancel_backend on batch beside many locks", end: 400 * time.Microsecond, try: true, batch: true, many: true, cut: byAdmin},
}

func TestWhatAnAcquireReturnsIsWhatTheServerSaysWhenAnEndOfTheWaitRacesTheGrant(t *testing.T) {
	pgtest.Long(t)
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) {
			dsn := pgtest.DSN(t)
			us := &lockSession{Session: acquire(t, newPool(t, dsn, nil))}
			if c.many {
				fill(t, us.Session, manyLocks)
			}
			n := soak.Size(t, 100, 10_000)
			// A short statement is seldom hit, and on a busy machine one of the two ends can be rare.
			met := func(s score) bool { return us.resolved > 0 && min(s.held, s.races-s.held) > n/20 }
			s := runRaces(t, dsn, c, us, func(s score) bool { return s.races < n || !met(s) && s.races < max(n, 40_000) })
			t.Logf("%d races: %d held, %d not; %d resolved", s.races, s.held, s.races-s.held, us.resolved)
			assert.Zero(t, s.phantoms, "said not held, and it was")
			assert.Zero(t, s.ghosts, "said held, and it was not")
			assert.Greater(t, s.held, n/20, "the lock was granted too seldom for a race")
			assert.Greater(t, s.races-s.held, n/20, "the wait ended too seldom for a race")
			assert.Positive(t, us.resolved, "nothing had to be resolved: the window was missed")
		})
	}
}

// The negative control: the same races find phantoms in the usual way to wait.
func TestTheSameRacesFindPhantomsInTheUsualWayToAcquire(t *testing.T) {
	pgtest.Long(t)
	for _, c := range cells {
		if c.many {
			continue // the usual way knows of no other locks: it is the cell before
		}
		t.Run(c.name, func(t *testing.T) {
			dsn := pgtest.DSN(t)
			s := runRaces(t, dsn, c, &naive{bystander: connect(t, dsn)}, func(s score) bool { return s.races < 40_000 && s.phantoms == 0 })
			t.Logf("%d races: %d held, %d phantoms", s.races, s.held, s.phantoms)
			assert.Positive(t, s.phantoms)
		})
	}
}

type score struct{ races, held, phantoms, ghosts int }

// runRaces races while more says so. The window of ±250 µs around the end of the
// wait moves so that the lock is granted
// in about half of the races.
func runRaces(t *testing.T, dsn string, c cell, us contender, more func(score) bool) (s score) {
	t.Helper()
	holder, judge, admin := connect(t, dsn), connect(t, dsn), connect(t, dsn)
	lock, unlock := "SELECT pg_advisory_lock(7, 9)", "SELECT pg_advisory_unlock(7, 9)"
	before := judge.locks(us.pid())
	aim := window{at: c.end, step: time.Millisecond}
	for more(s) {
		holder.exec(lock)
		start := time.Now().Add(50 * time.Microsecond)
		jitter := rand.N(500*time.Microsecond) - 250*time.Microsecond
		var wg sync.WaitGroup
		wg.Go(func() {
			spinUntil(start.Add(aim.at + jitter))
			_, _ = holder.try(unlock)
		})
		if c.cut != nil {
			wg.Go(func() {
				end := c.end
				if c.try {
					end = rand.N(c.end)
				}
				spinUntil(start.Add(end))
				c.cut(us, admin)
			})
		}
		spinUntil(start)
		if c.try { // its end cannot be awaited: the cancellation is sent up to 400 µs before
			spinUntil(start.Add(c.end))
		}
		held := us.acquire(t, c)
		wg.Wait()
		switch is := judge.holds(us.pid(), pairKey); {
		case is && !held:
			s.phantoms++
		case held && !is:
			s.ghosts++
		}
		s.races++
		if held {
			s.held++
		}
		aim.move(held)
		us.release(t, held)
		if !assert.Equal(t, before, judge.locks(us.pid()), "something stays locked after the release") {
			return s
		}
	}
	return s
}

// A window is the middle of the times at which the lock is granted.
type window struct {
	at, step time.Duration
	later    bool
}

// move follows the end of the wait, with ever smaller steps.
func (w *window) move(later bool) {
	if later != w.later {
		w.later, w.step = later, max(w.step/2, 5*time.Microsecond)
	}
	if later {
		w.at += w.step
	} else {
		w.at = max(w.at-w.step, 0)
	}
}

func spinUntil(at time.Time) {
	if pause := time.Until(at) - time.Millisecond; pause > 0 {
		<-time.After(pause)
	}
	for time.Now().Before(at) {
		runtime.Gosched()
	}
}

// A lockSession contends as the Locker does.
type lockSession struct {
	*Session
	resolved int
	ops      []*session.Op // of a batch
}

// besides is how many other keys a batch takes before and after the contended one.
const besides = 20

// batch takes the lock in the middle of a batch.
func (l *lockSession) acquireInBatch(t *testing.T) (held bool) {
	t.Helper()
	l.ops = l.ops[:0]
	for i := range besides {
		l.ops = append(l.ops, try(pairOf(1000+i), session.Exclusive))
	}
	contended := try(pairKey, session.Exclusive)
	l.ops = append(l.ops, contended)
	for i := range besides {
		l.ops = append(l.ops, try(pairOf(2000+i), session.Exclusive))
	}
	checks := l.from.counters.pidChecks.Load()
	run(t, l.Session, l.ops...)
	if l.from.counters.pidChecks.Load() > checks+1 && contended.Held {
		l.resolved++
	}
	for _, op := range l.ops {
		assert.NoError(t, op.Err)
		assert.True(t, op.Held || op == contended)
	}
	return contended.Held
}

func (l *lockSession) pid() uint32 { return l.PID() }

func (l *lockSession) acquire(t *testing.T, c cell) (held bool) {
	t.Helper()
	if c.batch {
		return l.acquireInBatch(t)
	}
	var err error
	checks := l.from.counters.pidChecks.Load()
	if c.try {
		held, err = l.Try(pairKey, session.Exclusive)
	} else {
		held, err = l.Wait(pairKey, session.Exclusive, c.limit)
	}
	assert.NoError(t, err)
	if l.from.counters.pidChecks.Load() > checks+1 { // the server was asked what is held
		l.resolved++
	}
	return held
}

func (l *lockSession) cancel() { l.Interrupt() }

func (l *lockSession) release(t *testing.T, held bool) {
	t.Helper()
	if l.ops != nil {
		var unlocks []*session.Op
		for _, op := range l.ops {
			if op.Held {
				unlocks = append(unlocks, unlockOf(op))
			}
		}
		run(t, l.Session, unlocks...)
		return
	}
	if held {
		assert.NoError(t, l.Unlock(pairKey, session.Exclusive))
	}
	select {
	case <-l.interrupt: // it came too late for this wait
	default:
	}
	require.NotEqual(t, session.Lost, l.state(time.Now()))
}

// A naive contender takes an error for "not held".
type naive struct{ bystander }

func (n *naive) pid() uint32 { return n.conn.PID() }

func (n *naive) acquire(_ *testing.T, c cell) bool {
	sql := "SET lock_timeout = '" + Milliseconds(c.limit) + "'; SELECT pg_advisory_lock(7, 9)"
	if c.try { // other work in the statement makes it easier to hit
		sql = "SELECT pg_try_advisory_lock(7, 9), pg_sleep(0.001)"
	}
	if c.batch {
		sql = "SELECT bool_or(pg_try_advisory_lock(7, i)) FILTER (WHERE i = 9), pg_sleep(0.001) FROM generate_series(1, 1000) AS i"
	}
	row, err := n.try(sql)
	return err == nil && row[0] != "f"
}

func (n *naive) cancel() { assert.NoError(n.t, n.conn.CancelRequest(context.Background())) }

// release undoes phantoms, which its owner does not know of.
func (n *naive) release(t *testing.T, _ bool) {
	t.Helper()
	for {
		_, err := n.try("SELECT pg_advisory_unlock_all()")
		if err == nil {
			return
		}
		require.True(t, strings.Contains(err.Error(), sqlstate.QueryCanceled), err)
	}
}

var _ = []contender{(*lockSession)(nil), (*naive)(nil)}
