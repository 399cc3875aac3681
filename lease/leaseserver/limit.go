package leaseserver

import (
	"time"

	echomw "github.com/labstack/echo/v4/middleware"
	"golang.org/x/time/rate"
)

// newLimiter limits the requests of each client address. It forgets addresses that have been quiet
// for a while.
func newLimiter(perSecond float64, burst int) *echomw.RateLimiterMemoryStore {
	return echomw.NewRateLimiterMemoryStoreWithConfig(echomw.RateLimiterMemoryStoreConfig{
		Rate: rate.Limit(perSecond), Burst: burst, ExpiresIn: time.Minute,
	})
}
