package agents

import (
	"sync"
	"time"
)

// A RateLimiter lets this process do something a limited number of times. It concerns only
// one process, so a mutex guards it, not an advisory lock.
type RateLimiter struct {
	every time.Duration
	burst int

	mu     sync.Mutex
	tokens int
	filled time.Time // when the bucket had this many tokens
}

// NewRateLimiter returns a full bucket of burst tokens that gains one token per interval every.
func NewRateLimiter(burst int, every time.Duration) *RateLimiter {
	return &RateLimiter{every: every, burst: burst, tokens: burst, filled: time.Now()}
}

// Allow takes a token and reports whether there was one.
func (l *RateLimiter) Allow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gained := int(time.Since(l.filled) / l.every); gained > 0 {
		l.tokens = min(l.tokens+gained, l.burst)
		l.filled = l.filled.Add(time.Duration(gained) * l.every)
	}
	if l.tokens == 0 {
		return false
	}
	l.tokens--
	return true
}
