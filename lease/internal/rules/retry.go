package rules

import (
	"math/rand/v2"
	"time"
)

// Retry is how long a refused request should wait: a random time, so that a herd
// spreads, below what remains, and at most a second, since a holder may release
// before.
func Retry(remaining time.Duration) time.Duration {
	const shortest, longest = 10 * time.Millisecond, time.Second
	half := min(max(remaining, shortest), longest) / 2
	return half + rand.N(half)
}
