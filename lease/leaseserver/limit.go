package leaseserver

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pglatch/pglatch/internal/loopback"
)

// forgetAfter is how long a limiter remembers an address that sends nothing.
const forgetAfter = time.Minute

// A limiter limits the requests of each client address. nil = no limit.
type limiter struct {
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

func newLimiter(perSecond float64, burst int) *limiter {
	return &limiter{rate: rate.Limit(perSecond), burst: burst, addresses: make(map[string]*limited), swept: time.Now()}
}

// allow charges an address, whatever its port, for one request. It reports whether the request is
// within the limit.
func (l *limiter) allow(address string) bool {
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
