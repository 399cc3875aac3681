package advisory

import (
	"container/heap"
	"time"

	"github.com/pglatch/pglatch/internal/locktable"
)

// A deadlineTimer ends waits whose time is over. All waits share one timer. Most waits are served soon, and such a wait pays neither
// for a timer nor for a place in the heap: it begins in the list young. When the timer fires, it moves the waits that are still in
// the list to the heap. The deadlineTimer is guarded by core.mu.
type deadlineTimer struct {
	timer *time.Timer       // nil = never set
	at    locktable.Instant // when it fires; 0 = not set
	young []*request        // in no order
	waits deadlineHeap
}

// youth is how long a wait stays in the list young at most. A wait with an earlier deadline goes
// straight to the heap.
const youth = 50 * time.Millisecond

// expired is the place of a request whose time is over.
const expired = -1

// expect schedules the end of a request's wait at its deadline.
func (c *core) expect(r *request) {
	if r.Deadline == 0 || r.place > 0 {
		return
	}
	a, now := &c.deadlines, c.table.Now()
	at := now + youth
	if r.Deadline > at {
		a.young = append(a.young, r)
		r.place = len(a.young)
	} else {
		at = r.Deadline
		heap.Push(&a.waits, r)
	}
	if a.at == 0 || at < a.at {
		a.set(at, now, c.expireWaits)
	}
}

// expireWaits wakes the requests whose time is over. They withdraw themselves.
func (c *core) expireWaits() {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, now := &c.deadlines, c.present()
	for _, r := range a.young {
		heap.Push(&a.waits, r)
	}
	clear(a.young)
	a.young = a.young[:0]
	for len(a.waits) > 0 && a.waits[0].Deadline <= now {
		r := a.waits[0]
		a.forget(r)
		r.place = expired
		r.wakeUp()
	}
	a.at = 0
	if len(a.waits) > 0 && c.table.Ended() == nil {
		a.set(a.waits[0].Deadline, now, c.expireWaits)
	}
}

// forget removes a request, if it is scheduled.
func (a *deadlineTimer) forget(r *request) {
	i := r.place - 1
	switch {
	case i < 0:
	case i < len(a.young) && a.young[i] == r:
		last := len(a.young) - 1
		a.young[last].place = r.place
		a.young[i], a.young[last] = a.young[last], nil
		a.young, r.place = a.young[:last], 0
	default:
		heap.Remove(&a.waits, i)
	}
}

func (a *deadlineTimer) set(at, now locktable.Instant, ring func()) {
	a.at = at
	if a.timer == nil {
		a.timer = time.AfterFunc(at-now, ring)
		return
	}
	a.timer.Reset(at - now)
}

func (a *deadlineTimer) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// A deadlineHeap is a heap.Interface with the earliest deadline first.
type deadlineHeap []*request

func (h deadlineHeap) Len() int { return len(h) }

func (h deadlineHeap) Less(i, j int) bool { return h[i].Deadline < h[j].Deadline }

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

// instant converts a time to the table's unit.
func (c *core) instant(at time.Time) locktable.Instant { return at.Sub(c.opened) }

// present returns the current instant.
func (c *core) present() locktable.Instant { return time.Since(c.opened) }
