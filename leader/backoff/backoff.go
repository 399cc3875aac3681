// Package backoff has strategies that set the delay before the next attempt after a failed one. An Elector uses
// one to acquire leadership and to reconnect. A Node of leader/shards uses one to start work again:
//
//	leader.Config{Retry: backoff.Exponential{Base: time.Second, Max: time.Minute}, …}
package backoff

import (
	"cmp"
	"math"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// A Strategy sets the delay before the next attempt. It must be safe for concurrent use if several users share
// it. The strategies of this package are values, and are safe.
type Strategy interface {
	// NextDelay returns how long to wait before the next attempt. ok = false means no more attempts.
	NextDelay(r Retry) (delay time.Duration, ok bool)
}

// A Retry describes the attempts so far. The count starts again after a success.
type Retry struct {
	Attempt int           // the number of attempts so far: 1 after the first
	Elapsed time.Duration // since the first attempt began
	Last    time.Duration // the delay that NextDelay returned last time; 0 = this was the first attempt
	Err     error         // of the last attempt; nil = it did not fail, but another node leads (elections only)
}

// defaultJitter is the fraction by which a delay varies, up or down, so that the nodes of a cluster do not
// try in step.
const defaultJitter = 0.2

// Fixed waits the same time after each attempt.
type Fixed struct {
	Interval    time.Duration // 0 = 2 s
	Jitter      float64       // fraction of the interval by which it varies; 0 = 0.2, negative = none
	MaxAttempts int           // 0 = no limit
}

// NextDelay implements Strategy.
func (f Fixed) NextDelay(r Retry) (time.Duration, bool) {
	return jitter(cmp.Or(f.Interval, 2*time.Second), f.Jitter), f.MaxAttempts <= 0 || r.Attempt < f.MaxAttempts
}

// Exponential waits Base after the first attempt and multiplies the delay by Multiplier after each further one,
// up to Max.
type Exponential struct {
	Base        time.Duration // 0 = 1 s
	Max         time.Duration // 0 = 30 s
	Multiplier  float64       // 0 = 2
	Jitter      float64       // fraction of the delay by which it varies; 0 = 0.2, negative = none
	MaxAttempts int           // 0 = no limit
}

// NextDelay implements Strategy.
func (e Exponential) NextDelay(r Retry) (time.Duration, bool) {
	longest := cmp.Or(e.Max, 30*time.Second)
	delay := float64(cmp.Or(e.Base, time.Second)) * math.Pow(cmp.Or(e.Multiplier, 2), float64(r.Attempt-1))
	if delay > float64(longest) {
		delay = float64(longest)
	}
	return min(jitter(time.Duration(delay), e.Jitter), longest), e.MaxAttempts <= 0 || r.Attempt < e.MaxAttempts
}

func jitter(d time.Duration, part float64) time.Duration {
	return pause.Jitter(d, max(min(cmp.Or(part, defaultJitter), 1), 0))
}
