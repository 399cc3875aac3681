package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/trace"
)

// Locks replays a run of callers of Lockers and of LockTx; each Locker is a process of the run. One Locker decides with its lock table, whose
// events internal/test/tabletrace replays. Between Lockers the server decides, so there is no machine to link, and the check
// has rules of its own. TestTheTablesAcceptRandomWalksOfTheirModels compares them with spec/session.pml:
//
//   - A caller asks, gets the lock or is refused, and releases what it got or loses it.
//   - A lock is lost only if a fault hit its Locker after the caller had asked.
//   - No two hold a lock at once, by the judge of holds, except readers, and holders of different slots of a semaphore. One that
//     lost its lock may have lost it as soon as it was granted.
func Locks(run []trace.Event) error {
	callers := newCallers(run)
	for i, e := range run {
		if wrong := callers.see(i, e); wrong != "" {
			return refuse(run, i, "%s", wrong)
		}
	}
	return callers.exclude(run)
}

// lateEnd is how long after a call that terminates a session the server may end it.
const lateEnd = time.Second

// A caller asks for one lock after the other.
type caller struct{ process, who string }

// A call is what a caller has done for a lock. Its last event is the phase: asked, acquired or releasing.
type call struct {
	caller
	key                        string
	slots                      int
	phase                      trace.Kind
	asked, acquired, releasing int // indexes in the run
	ended                      int // the same
	lost                       bool
}

// callers are all callers of a run.
type callers struct {
	faults disturbances
	open   map[caller]*call
	held   []*call // those that were granted, and have ended
}

func newCallers(run []trace.Event) *callers {
	c := &callers{open: make(map[caller]*call)}
	for _, e := range run {
		if e.Kind == trace.Fault {
			c.faults = c.faults.with(e)
		}
	}
	for i := range c.faults {
		if c.faults[i].until < forever {
			c.faults[i].until += int64(lateEnd)
		}
	}
	return c
}

// before are the phases in which an event of a caller is legal. A caller that asks has no phase.
var before = map[trace.Kind][]trace.Kind{
	trace.Ask:      {""},
	trace.Acquired: {trace.Ask},
	trace.Refused:  {trace.Ask},
	trace.Release:  {trace.Acquired},
	trace.Released: {trace.Release},
	trace.Lost:     {trace.Acquired, trace.Release},
}

// see checks the next event of the run, and returns what is wrong.
func (c *callers) see(index int, e trace.Event) string {
	if e.Kind == trace.Stopped {
		for who := range c.open {
			if who.process == e.Process {
				return "it stopped, and its caller " + who.who + " has not reported the end of its call"
			}
		}
	}
	legal, ok := before[e.Kind]
	if !ok {
		return ""
	}
	who := caller{e.Process, e.Who}
	now := c.open[who]
	if now == nil {
		now = &call{caller: who, key: e.Key}
	}
	switch {
	case !slices.Contains(legal, now.phase):
		return "the caller has " + cmp.Or(map[trace.Kind]string{
			trace.Ask: "asked", trace.Acquired: "the lock", trace.Release: "begun to release the lock",
		}[now.phase], "not asked")
	case now.key != e.Key:
		return "the caller's lock is " + now.key
	case e.Kind == trace.Acquired && e.Slots != now.slots:
		return fmt.Sprintf("the caller asked for one of %d slots", now.slots)
	}
	return c.step(now, index, e)
}

// step moves a call by a legal event.
func (c *callers) step(now *call, index int, e trace.Event) string {
	now.phase = e.Kind
	switch e.Kind {
	case trace.Ask:
		now.asked, now.slots = index, e.Slots
		c.open[now.caller] = now
		return ""
	case trace.Acquired:
		now.acquired, now.releasing = index, index
		return ""
	case trace.Release:
		now.releasing = index
		return ""
	case trace.Released, trace.Lost:
		now.ended, now.lost = index, e.Kind == trace.Lost
		c.held = append(c.held, now)
	}
	delete(c.open, now.caller)
	return ""
}

// exclude checks that the faults explain all losses, and that no two held a lock at once.
func (c *callers) exclude(run []trace.Event) error {
	for _, one := range c.held {
		if one.lost && !c.faults.hit(one.process, run[one.asked].Boot, run[one.ended].Boot) {
			return refuse(run, one.ended, "the lock was lost, and no fault hit its process")
		}
	}
	all := slices.Clone(c.held)
	for _, one := range c.open { // until the end of the run, unless its loss was not reported any more
		switch one.phase {
		case trace.Acquired, trace.Release:
			one.ended, one.lost = len(run)-1, c.faults.hit(one.process, run[one.asked].Boot, forever)
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b *call) int { return cmp.Compare(a.acquired, b.acquired) })
	holds := make([]judge.Hold, len(all))
	for i, one := range all {
		holds[i] = one.hold(run)
	}
	if judgeSlots(holds, run) == nil {
		return nil
	}
	first := sort.Search(len(holds)-1, func(n int) bool { return judgeSlots(holds[:n+1], run) != nil })
	return refuse(run, all[first].acquired, "%v", judgeSlots(holds[:first+1], run))
}

// judgeSlots judges the holds of each key with as many slots as its callers asked for.
func judgeSlots(holds []judge.Hold, run []trace.Event) error {
	slots := make(map[string]int)
	for _, e := range run {
		slots[e.Key] = max(slots[e.Key], e.Slots, 1)
	}
	byKey := make(map[string][]judge.Hold)
	for _, h := range holds {
		byKey[h.Key] = append(byKey[h.Key], h)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if err := judge.Holds(byKey[key], slots[key]); err != nil {
			return err
		}
	}
	return nil
}

// hold is the time for which a caller held its lock.
func (c *call) hold(run []trace.Event) judge.Hold {
	h := judge.Hold{
		Key: c.key, Who: c.process + " " + c.who, Exclusive: run[c.acquired].Slots == 0,
		Begin: judge.Moment{Earliest: run[c.asked].Boot, Latest: run[c.acquired].Boot},
		End:   judge.Moment{Earliest: run[c.releasing].Boot, Latest: run[c.ended].Boot},
	}
	switch {
	case c.lost:
		h.End.Earliest = h.Begin.Earliest // as soon as the server had granted it
	case c.phase == trace.Acquired: // at the end of the run
		h.End = judge.At(run[c.ended].Boot + 1)
	}
	return h
}
