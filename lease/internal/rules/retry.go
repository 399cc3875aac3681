package rules

import (
	"math/rand/v2"
	"time"
)

// Retry returns how long a refused request should wait. The time is random, so that a herd spreads,
// and below remaining. It is at most a second, because a holder may release early.
func Retry(remaining time.Duration) time.Duration {
	const shortest, longest = 10 * time.Millisecond, time.Second
	half := min(max(remaining, shortest), longest) / 2
	return half + rand.N(half)
}
