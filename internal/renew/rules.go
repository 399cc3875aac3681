// Package renew keeps a right that ends unless it is renewed: a leadership, a session of shards, a
// lease or a claim. Rules decide when to renew, by a pure function. A Keeper carries that out.
package renew

import "time"

// Rules are the times of a right's renewals.
type Rules struct {
	Interval time.Duration // from the start of a good renewal to the start of the next one
	Timeout  time.Duration // bounds one renewal; 0 = only the right's deadline does
	Pause    time.Duration // after the first failure; each further one doubles it
	Longest  time.Duration // limits such a pause; Pause or more
	Failures int           // consecutive failures that end the right; 0 = as many as there is time for
}

// Margin returns what to subtract from the end of a right that lasts for d, because clocks run at
// different rates.
func Margin(d time.Duration) time.Duration { return d / 10 }

// An Event is what can change the next step.
type Event uint8

// The events of a right.
const (
	Begun  Event = iota // the right was acquired
	Due                 // the wait of the last step is over
	Kept                // a renewal succeeded in time
	Failed              // a renewal failed, or its outcome is unknown
	Gone                // the right is lost, or a renewal succeeded too late
)

// A State is what Rules remember of one right. The zero State is that before Begun.
type State struct {
	asking   bool // a renewal is under way
	failures int  // consecutive
	over     bool // the end was reported
}

// Failures returns how many renewals have failed in a row.
func (s State) Failures() int { return s.failures }

// An Action is what to do next.
type Action uint8

// The actions of a Step.
const (
	Wait    Action = iota // for the Step's time, or until another event
	Ask                   // begin a renewal, and then wait
	Report                // the right has ended: its holder must stop
	Nothing               // the end was reported before
)

// A Step is an action with its times.
type Step struct {
	Action Action
	Wait   time.Duration // until Due; never longer than the right can be trusted
	Within time.Duration // the time for the renewal to Ask for
}

// Next returns the next step. since is the time since the start of the last renewal, or of the
// acquisition. left is how long the right can still be trusted, 0 or less if no longer. No wait is
// longer than an Interval, unless a pause is: the timer stands still while the machine is suspended.
func (r Rules) Next(s State, e Event, since, left time.Duration) (State, Step) {
	if s.over {
		return s, Step{Action: Nothing}
	}
	switch e {
	case Begun, Kept:
		s.asking, s.failures = false, 0
	case Failed:
		s.asking = false
		s.failures++
	}
	if e == Gone || left <= 0 || r.Failures > 0 && s.failures >= r.Failures {
		return State{failures: s.failures, over: true}, Step{Action: Report}
	}
	switch {
	case e == Failed:
		return s, Step{Wait: min(r.pause(s.failures), max(r.latest(left), r.Pause), left)}
	case e != Due:
		return s, Step{Wait: min(max(r.Interval-since, 0), r.latest(left))}
	case s.asking: // the deadline may have moved, or the machine have been suspended
		return s, Step{Wait: min(left, r.Interval)}
	}
	s.asking = true
	within := left
	if r.Timeout > 0 {
		within = min(r.Timeout, left)
	}
	return s, Step{Action: Ask, Wait: min(left, r.Interval), Within: within}
}

// pause returns the delay after a number of failures.
func (r Rules) pause(failures int) time.Duration {
	pause := r.Pause
	for range failures - 1 {
		if pause >= r.Longest {
			break
		}
		pause *= 2
	}
	return min(pause, r.Longest)
}

// latest returns when to ask at the latest, so that a renewal has time before the deadline.
func (r Rules) latest(left time.Duration) time.Duration { return max(left-r.Pause, left/2) }
