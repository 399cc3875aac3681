package advisory

import (
	"container/heap"
	"time"

	"github.com/pglatch/pglatch/internal/locktable"
)

// A deadlineTimer ends waits whose time is over. All waits share one timer, which is set to the earliest deadline. A wait that is
// served in time, as most are, pays for no timer. The deadlineTimer is guarded by core.mu.
type deadlineTimer struct {
	timer *time.Timer // nil = never set
	at    time.Time   // when it fires; zero = not set
	waits deadlineHeap
}

// expired is the place of a request whose time is over.
const expired = -1

// expect schedules the end of a request's wait at its deadline.
func (c *core) expect(r *request) {
	if r.deadline.IsZero() || r.place > 0 {
		return
	}
	a := &c.deadlines
	heap.Push(&a.waits, r)
	if a.at.IsZero() || r.deadline.Before(a.at) {
		a.set(r.deadline, c.expireWaits)
	}
}

// expireWaits wakes the requests whose time is over. They withdraw themselves.
func (c *core) expireWaits() {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, now := &c.deadlines, time.Now()
	for len(a.waits) > 0 && !now.Before(a.waits[0].deadline) {
		r := a.waits[0]
		a.forget(r)
		r.place = expired
		r.wakeUp()
	}
	a.at = time.Time{}
	if len(a.waits) > 0 && c.table.Ended() == nil {
		a.set(a.waits[0].deadline, c.expireWaits)
	}
}

// forget removes a request, if it is scheduled.
func (a *deadlineTimer) forget(r *request) {
	if r.place > 0 {
		heap.Remove(&a.waits, r.place-1)
	}
}

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

// A deadlineHeap is a heap.Interface with the earliest deadline first.
type deadlineHeap []*request

func (h deadlineHeap) Len() int { return len(h) }

func (h deadlineHeap) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }

func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

func (h *deadlineHeap) Push(r any) {
	*h = append(*h, r.(*request)) //nolint:forcetypeassert // expect pushes no other
	(*h)[len(*h)-1].place = len(*h)
}

func (h *deadlineHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h, last.place = (*h)[:len(*h)-1], 0
	return last
}

// now is time.Now, with a wall clock that nobody sets, so that it need not be read.
func (c *core) now() time.Time { return c.opened.Add(time.Since(c.opened)) }

// instant converts a time to the table's unit.
func (c *core) instant(at time.Time) locktable.Instant { return at.Sub(c.opened) }

// present returns the current instant.
func (c *core) present() locktable.Instant { return time.Since(c.opened) }
