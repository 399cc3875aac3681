package advisory

import "time"

// A deadlineTimer ends waits whose time is over. All share one timer, which is set to the
// earliest deadline that it has seen: a wait that is served in time, as most are,
// pays for none. It is guarded by core.mu.
type deadlineTimer struct {
	timer *time.Timer   // nil = never set
	at    time.Time     // when it goes off; zero = not set
	waits list[request] // with a deadline
}

// expect has a request's wait end at its deadline.
func (c *core) expect(r *request) {
	if r.deadline.IsZero() || r.inTimer.in {
		return
	}
	a := &c.deadlines
	a.waits.push(&r.inTimer, r)
	if a.at.IsZero() || r.deadline.Before(a.at) {
		a.set(r.deadline, c.expireWaits)
	}
}

// expireWaits wakes those whose time is over; they withdraw their requests themselves.
func (c *core) expireWaits() {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &c.deadlines
	now, next := time.Now(), time.Time{}
	for r := range a.waits.all {
		switch {
		case !now.Before(r.deadline):
			a.forget(r)
			r.expired = true
			r.wakeUp()
		case next.IsZero() || r.deadline.Before(next):
			next = r.deadline
		}
	}
	a.at = time.Time{}
	if !next.IsZero() && !c.closed {
		a.set(next, c.expireWaits)
	}
}

// forget takes a request back, if it is expected.
func (a *deadlineTimer) forget(r *request) { a.waits.remove(&r.inTimer) }

func (a *deadlineTimer) set(at time.Time, ring func()) {
	a.at = at
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(at), ring)
		return
	}
	a.timer.Reset(time.Until(at))
}

func (a *deadlineTimer) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
