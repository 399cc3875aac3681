package advisory

import (
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// pauseEvery is how often a Locker that holds locks checks the clock. At worst, a check wakes up
// an idle Go process. That costs 0.2 ms of processor time, however many locks are held: a
// thousandth of one processor.
const pauseEvery = 200 * time.Millisecond

// A pauseWatch detects that the process or the machine stood still while locks were held. A context
// that descends from a lock's context cannot check the clock itself. The timer runs on
// CLOCK_MONOTONIC. So it is due at once when the process continues after a SIGSTOP, and within
// pauseEvery after the machine was suspended. It is guarded by core.mu.
type pauseWatch struct {
	timer *time.Timer   // nil = never set
	at    time.Duration // the last check, on boottime's clock; 0 = the watch does not run
	clock func() time.Duration
}

// watchPauses starts the watch for pauses while locks are held, under mu.
func (c *core) watchPauses() {
	p := &c.pauses
	if p.at != 0 || c.table.Ended() != nil {
		return
	}
	p.at = p.clock()
	if p.timer == nil {
		p.timer = time.AfterFunc(pauseEvery, c.lookForPause)
		return
	}
	p.timer.Reset(pauseEvery)
}

// lookForPause ends the locks whose time ran out during a pause. Without a pause, a lock that was
// good at the last check can expire only if the server is silent, and its session detects that
// itself.
func (c *core) lookForPause() {
	c.mu.Lock()
	p := &c.pauses
	if c.table.Ended() != nil || c.stats.held.Load() == 0 {
		p.at = 0
		c.mu.Unlock()
		return
	}
	now := p.clock()
	paused := now-p.at > c.config.shortestPause()
	p.at = now
	p.timer.Reset(pauseEvery)
	if !paused {
		c.mu.Unlock()
		return
	}
	wall := time.Now()
	for _, n := range slices.Collect(c.table.Conns) { // the loss of one can open another
		connOf(n).expire(wall)
	}
	c.run()
	c.mu.Unlock()
}

// shortestPause is the shortest time that counts as a pause. A lock that was good does not expire
// in less: it is pinged every third of SessionTTL, and good for nine tenths of it less LossDrain.
// If that leaves little time, each check counts as the end of a pause.
func (c Config) shortestPause() time.Duration {
	return min(pauseEvery+pauseEvery/10, session.Times(c.SessionTTL, c.LossDrain).Slack())
}
