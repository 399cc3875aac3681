package advisory

import "time"

// An alarm ends waits whose time is over. All share one timer, which is set to the
// earliest deadline that it has seen: a wait that is served in time, as most are,
// pays for none. It is guarded by core.mu.
type alarm struct {
	timer       *time.Timer // nil = never set
	at          time.Time   // when it goes off; zero = not set
	first, last *request    // those who wait and have a deadline
}

// expect has a request's wait end at its deadline.
func (c *core) expect(r *request) {
	if r.deadline.IsZero() {
		return
	}
	a := &c.alarm
	r.expected, r.before, r.after = true, a.last, nil
	if a.last == nil {
		a.first = r
	} else {
		a.last.after = r
	}
	a.last = r
	if a.at.IsZero() || r.deadline.Before(a.at) {
		a.set(r.deadline, c.ring)
	}
}

// forget takes a request back, if it is expected.
func (a *alarm) forget(r *request) {
	if !r.expected {
		return
	}
	if r.before == nil {
		a.first = r.after
	} else {
		r.before.after = r.after
	}
	if r.after == nil {
		a.last = r.before
	} else {
		r.after.before = r.before
	}
	r.expected, r.before, r.after = false, nil, nil
}

func (a *alarm) set(at time.Time, ring func()) {
	a.at = at
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(at), ring)
		return
	}
	a.timer.Reset(time.Until(at))
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// ring wakes those whose time is over; they withdraw their requests themselves.
func (c *core) ring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &c.alarm
	now, next := time.Now(), time.Time{}
	for r := a.first; r != nil; {
		following := r.after
		switch {
		case !now.Before(r.deadline):
			a.forget(r)
			r.signal(false)
		case next.IsZero() || r.deadline.Before(next):
			next = r.deadline
		}
		r = following
	}
	a.at = time.Time{}
	if !next.IsZero() && !c.closed {
		a.set(next, c.ring)
	}
}
