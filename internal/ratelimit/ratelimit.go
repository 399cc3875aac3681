// Package ratelimit limits the requests that a server answers.
package ratelimit

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pglatch/pglatch/internal/loopback"
)

// forgetAfter is how long a limiter remembers an address that sends nothing.
const forgetAfter = time.Minute

// A Limiter limits the requests of each client address. nil = no limit.
type Limiter struct {
	rate  rate.Limit
	burst int

	mu        sync.Mutex
	addresses map[string]*limited
	swept     time.Time // when quiet addresses were forgotten last
}

// A limited is one address.
type limited struct {
	*rate.Limiter
	seen time.Time
}

// New returns a Limiter of requests per second, of which burst may come at once.
func New(perSecond float64, burst int) *Limiter {
	return &Limiter{rate: rate.Limit(perSecond), burst: burst, addresses: make(map[string]*limited), swept: time.Now()}
}

// Allow charges an address, whatever its port, for one request. It reports whether the request is
// within the limit.
func (l *Limiter) Allow(address string) bool {
	if l == nil {
		return true
	}
	host := loopback.Host(address)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	a := l.addresses[host]
	if a == nil {
		a = &limited{Limiter: rate.NewLimiter(l.rate, l.burst)}
		l.addresses[host] = a
	}
	a.seen = now
	if now.Sub(l.swept) > forgetAfter {
		maps.DeleteFunc(l.addresses, func(_ string, a *limited) bool { return now.Sub(a.seen) > forgetAfter })
		l.swept = now
	}
	return a.AllowN(now, 1)
}
