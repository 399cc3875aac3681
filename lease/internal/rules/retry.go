package rules

import (
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// Retry returns how long a refused request should wait. The time is random, so that many clients do
// not retry at once, and it is less than remaining. It is at most a second, because a holder may
// release early.
func Retry(remaining time.Duration) time.Duration {
	const shortest, longest = 10 * time.Millisecond, time.Second
	return pause.AtMost(min(max(remaining, shortest), longest))
}
