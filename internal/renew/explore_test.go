package renew_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/renew"
)

// A decision is Rules.Next, or a mutation of it.
type decision func(r renew.Rules, s renew.State, e renew.Event, since, left time.Duration) (renew.State, renew.Step)

// A case of the exploration: time passes in whole nanoseconds, so that few of them show all orders.
type scenario struct {
	renew.Rules
	trust time.Duration // the longest that a renewal is valid, from its start
}

var scenarios = map[string]scenario{
	"an election":        {renew.Rules{Interval: 4, Timeout: 4, Pause: 1, Longest: 1}, 9},
	"three failures":     {renew.Rules{Interval: 4, Timeout: 4, Pause: 1, Longest: 1, Failures: 3}, 9},
	"pauses that double": {renew.Rules{Interval: 4, Pause: 1, Longest: 4}, 11},
	"a short right":      {renew.Rules{Interval: 9, Pause: 2, Longest: 4}, 5},
	"hardly a right":     {renew.Rules{Interval: 9, Timeout: 3, Pause: 3, Longest: 3}, 2},
}

// A world is a right, what renews it, and what happened to it.
type world struct {
	state    renew.State
	left     time.Duration // until the deadline
	asking   bool          // a renewal is under way
	since    time.Duration // its start
	wait     time.Duration // until the timer
	failures int           // consecutive
	stopped  bool          // the process was, since the last event
	reported bool
}

// pass lets time pass. timer is how much of it the timer sees.
func (w world) pass(s scenario, d, timer time.Duration) world {
	w.left = max(w.left-d, -1)
	if w.asking {
		w.since = min(w.since+d, s.trust)
	}
	w.wait = max(w.wait-timer, 0)
	return w
}

// on lets an event happen, and returns what is wrong with the step.
func (w world) on(s scenario, next decision, e renew.Event) (world, error) {
	if w.reported {
		to, step := next(s.Rules, w.state, e, w.since, w.left)
		if to != w.state || step != (renew.Step{Action: renew.Nothing}) {
			return w, fmt.Errorf("after the report: %+v", step)
		}
		return w, nil
	}
	asking := w.asking
	w.stopped = false
	switch e {
	case renew.Begun, renew.Kept:
		w.failures = 0
	case renew.Failed:
		w.failures++
	}
	over := e == renew.Gone || w.left <= 0 || s.Failures > 0 && w.failures >= s.Failures
	var step renew.Step
	since := w.since
	w.state, step = next(s.Rules, w.state, e, since, w.left)
	if e != renew.Due {
		w.asking, w.since = false, 0
	}
	if got := w.state.Failures(); got != w.failures {
		return w, fmt.Errorf("%d failures instead of %d", got, w.failures)
	}
	switch {
	case over != (step.Action == renew.Report):
		return w, fmt.Errorf("it is over: %v, but %+v", over, step)
	case over:
		w.reported = true
		return w, nil
	case step.Wait < 0 || step.Wait > w.left:
		return w, fmt.Errorf("waits for %d of %d", step.Wait, w.left)
	}
	w.wait = step.Wait
	if (step.Action == renew.Ask || e == renew.Due) && step.Wait > s.Interval {
		return w, fmt.Errorf("does not look at the clock for %d during a renewal", step.Wait)
	}
	switch step.Action {
	case renew.Ask:
		w.asking, w.since = true, 0
		if e != renew.Due || asking {
			return w, fmt.Errorf("asks out of turn")
		}
		if step.Within <= 0 || step.Within > w.left || s.Timeout > 0 && step.Within > s.Timeout {
			return w, fmt.Errorf("%d for a renewal, of %d", step.Within, w.left)
		}
		return w, nil
	case renew.Wait:
		return w, w.waits(s, e, asking, since)
	}
	return w, fmt.Errorf("%+v", step)
}

// waits judges a wait: the next renewal comes neither too late nor too early.
func (w world) waits(s scenario, e renew.Event, asking bool, since time.Duration) error {
	latest := max(w.left-s.Pause, w.left/2) // so that a renewal has time
	switch {
	case e == renew.Due && asking:
		return nil
	case e == renew.Due:
		return fmt.Errorf("does not ask")
	case e == renew.Failed:
		longest := s.Pause << (w.failures - 1)
		if w.wait > min(longest, s.Longest) || w.wait > max(latest, s.Pause) {
			return fmt.Errorf("waits for %d after %d failures, with %d left", w.wait, w.failures, w.left)
		}
		if w.wait < min(s.Pause, w.left) || w.wait < min(longest, s.Longest, latest) {
			return fmt.Errorf("waits for only %d after %d failures, with %d left", w.wait, w.failures, w.left)
		}
		return nil
	case w.wait != min(max(s.Interval-since, 0), latest):
		return fmt.Errorf("waits for %d, %d after a renewal, with %d left", w.wait, since, w.left)
	}
	return nil
}

// after returns the worlds that can come next.
func (w world) after(s scenario, next decision) (all []world, err error) {
	event := func(w world, e renew.Event) {
		to, wrong := w.on(s, next, e)
		if wrong != nil && err == nil {
			err = fmt.Errorf("%+v, event %d: %w", w, e, wrong)
		}
		all = append(all, to)
	}
	if w.reported { // what comes late says nothing new
		for e := range renew.Gone + 1 {
			event(w, e)
		}
		return all, err
	}
	if w.wait == 0 {
		event(w, renew.Due)
	} else {
		all = append(all, w.pass(s, 1, 1))
	}
	for _, d := range []time.Duration{1, s.Pause, s.Interval, s.trust + 1} {
		w := w
		w.stopped = true
		all = append(all, w.pass(s, d, d), w.pass(s, d, 0)) // the process is stopped, the machine suspended
	}
	if w.failures < 6 { // more of them make no difference
		event(w, renew.Failed)
	}
	event(w, renew.Gone)
	if w.left <= 0 {
		return all, err // a success comes too late: Gone
	}
	if w.asking { // an answer to an earlier renewal moves the deadline
		w := w
		w.left = s.trust
		all = append(all, w)
	}
	for granted := w.left; granted <= s.trust-w.since; granted++ { // asked for or not
		w := w
		w.left = granted
		event(w, renew.Kept)
	}
	return all, err
}

// explore visits every world that can be reached, and returns how many there are.
func explore(s scenario, next decision) (int, error) {
	seen := map[world]bool{}
	var queue []world
	for left := time.Duration(-1); left <= s.trust; left++ {
		w, err := world{left: left, since: s.trust - left}.on(s, next, renew.Begun)
		if err != nil {
			return 0, fmt.Errorf("at the beginning, with %d left: %w", left, err)
		}
		queue = append(queue, w)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		w := queue[0]
		if seen[w] {
			continue
		}
		seen[w] = true
		if !w.reported && !w.stopped && w.left <= 0 && w.wait > 0 {
			return len(seen), fmt.Errorf("%+v: nobody finds that the time is over", w)
		}
		all, err := w.after(s, next)
		if err != nil {
			return len(seen), err
		}
		for _, to := range all {
			if !seen[to] {
				queue = append(queue, to)
			}
		}
	}
	return len(seen), nil
}

func TestTheRulesKeepTheirPromisesInEveryOrder(t *testing.T) {
	t.Parallel()
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			visited, err := explore(s, renew.Rules.Next)
			require.NoError(t, err)
			t.Logf("%d worlds", visited)
			assert.Greater(t, visited, 50)
		})
	}
}

// The exploration is worth what it finds in rules that are wrong.
func TestTheExplorationFindsEveryMutation(t *testing.T) {
	t.Parallel()
	step := func(wrong func(r renew.Rules, s renew.State, e renew.Event, left time.Duration, step *renew.Step)) decision {
		return func(r renew.Rules, s renew.State, e renew.Event, since, left time.Duration) (renew.State, renew.Step) {
			to, step := r.Next(s, e, since, left)
			wrong(r, s, e, left, &step)
			return to, step
		}
	}
	for name, mutation := range map[string]decision{
		"a right outlives its deadline": func(r renew.Rules, s renew.State, e renew.Event, since, left time.Duration) (renew.State, renew.Step) {
			return r.Next(s, e, since, max(left, 1))
		},
		"a loss is overlooked": func(r renew.Rules, s renew.State, e renew.Event, since, left time.Duration) (renew.State, renew.Step) {
			if e == renew.Gone {
				e = renew.Failed
			}
			return r.Next(s, e, since, left)
		},
		"failures are not counted": func(r renew.Rules, s renew.State, e renew.Event, since, left time.Duration) (renew.State, renew.Step) {
			r.Failures = 0
			return r.Next(s, e, since, left)
		},
		"a success does not forget failures": func(r renew.Rules, s renew.State, e renew.Event, since, left time.Duration) (renew.State, renew.Step) {
			to, step := r.Next(s, e, since, left)
			if e == renew.Kept {
				to, _ = r.Next(s, renew.Failed, since, left)
			}
			return to, step
		},
		"the interval begins with the answer": func(r renew.Rules, s renew.State, e renew.Event, _, left time.Duration) (renew.State, renew.Step) {
			return r.Next(s, e, 0, left)
		},
		"two reports": step(func(_ renew.Rules, _ renew.State, e renew.Event, _ time.Duration, step *renew.Step) {
			if step.Action == renew.Nothing && e == renew.Gone {
				step.Action = renew.Report
			}
		}),
		"a renewal after the report": step(func(_ renew.Rules, _ renew.State, e renew.Event, _ time.Duration, step *renew.Step) {
			if step.Action == renew.Nothing && e == renew.Due {
				step.Action = renew.Ask
			}
		}),
		"two renewals at once": step(func(_ renew.Rules, _ renew.State, e renew.Event, left time.Duration, step *renew.Step) {
			if step.Action == renew.Wait && e == renew.Due {
				*step = renew.Step{Action: renew.Ask, Wait: left, Within: left}
			}
		}),
		"no renewal": step(func(_ renew.Rules, _ renew.State, _ renew.Event, left time.Duration, step *renew.Step) {
			if step.Action == renew.Ask {
				*step = renew.Step{Wait: left}
			}
		}),
		"the first failure is the end": step(func(_ renew.Rules, _ renew.State, e renew.Event, _ time.Duration, step *renew.Step) {
			if step.Action == renew.Wait && e == renew.Failed {
				step.Action = renew.Report
			}
		}),
		"no pause": step(func(_ renew.Rules, _ renew.State, e renew.Event, _ time.Duration, step *renew.Step) {
			if e == renew.Failed {
				step.Wait = 0
			}
		}),
		"a pause without a limit": step(func(_ renew.Rules, _ renew.State, e renew.Event, left time.Duration, step *renew.Step) {
			if step.Action == renew.Wait && e == renew.Failed {
				step.Wait = left
			}
		}),
		"no last look": func(r renew.Rules, s renew.State, e renew.Event, since, left time.Duration) (renew.State, renew.Step) {
			to, step := r.Next(s, e, since, left)
			if step.Action == renew.Wait && e == renew.Kept {
				step.Wait = min(max(r.Interval-since, 0), left)
			}
			return to, step
		},
		"no look at the clock during a renewal": step(func(_ renew.Rules, _ renew.State, e renew.Event, left time.Duration, step *renew.Step) {
			if e == renew.Due {
				step.Wait = left
			}
		}),
		"a timer after the deadline": step(func(_ renew.Rules, _ renew.State, _ renew.Event, left time.Duration, step *renew.Step) {
			if step.Action == renew.Ask {
				step.Wait = left + 1
			}
		}),
		"a renewal without a limit": step(func(_ renew.Rules, _ renew.State, _ renew.Event, left time.Duration, step *renew.Step) {
			if step.Action == renew.Ask {
				step.Within = left + 1
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, s := range scenarios {
				if _, err := explore(s, mutation); err != nil {
					t.Log(err)
					return
				}
			}
			t.Error("not found")
		})
	}
}
