package advisory

import (
	"slices"
	"time"
)

// pauseEvery is how often a Locker that holds locks looks at the clock. A look costs
// what it takes to wake an idle Go process, 0.2 ms of a processor at worst, whatever is
// held: a thousandth of one.
const pauseEvery = 200 * time.Millisecond

// A pauseWatch finds out that the process, or the machine, stood still while locks were
// held: a context that descends from a lock's cannot look for itself. The timer runs on
// CLOCK_MONOTONIC, so that it is due at once when the process goes on after a SIGSTOP,
// and within pauseEvery after the machine was suspended. It is guarded by core.mu.
type pauseWatch struct {
	timer   *time.Timer // nil = never set
	running bool
	at      time.Duration // the last look, on boottime's clock
	clock   func() time.Duration
}

// watchPauses has pauses watched for while locks are held, under mu.
func (c *core) watchPauses() {
	p := &c.pauses
	if p.running || c.table.Ended() != nil {
		return
	}
	p.running, p.at = true, p.clock()
	if p.timer == nil {
		p.timer = time.AfterFunc(pauseEvery, c.lookForPause)
		return
	}
	p.timer.Reset(pauseEvery)
}

// lookForPause ends the locks whose time ran out during a pause. No lock that was well
// at the last look can expire without one, but for a silent server, which its session
// notices itself.
func (c *core) lookForPause() {
	c.mu.Lock()
	p := &c.pauses
	if c.table.Ended() != nil || c.stats.held.Load() == 0 {
		p.running = false
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
	for _, n := range slices.Collect(c.table.Conns) { // the loss of one can have another made
		connOf(n).expire(wall)
	}
	c.run()
	c.mu.Unlock()
}

// shortestPause is what counts as a pause. A lock that was well expires in no shorter
// one: it is pinged every third of SessionTTL, and good for nine tenths less LossDrain.
// Where that is little, each look is taken for the end of a pause.
func (c Config) shortestPause() time.Duration {
	return min(pauseEvery+pauseEvery/10, c.SessionTTL*9/10-c.LossDrain-c.SessionTTL/3)
}
