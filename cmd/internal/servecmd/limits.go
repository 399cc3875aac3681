package servecmd

import (
	"math"
	"time"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// limits bound the requests of clients.
type limits struct {
	rate                  float64
	burst, waiters        int
	body                  int64
	maxWait, storeTimeout time.Duration
}

func (l *limits) addFlags(f *pflag.FlagSet) {
	f.Float64Var(&l.rate, "rate", 0, "requests per second of a client address, on average; 0 = no limit")
	f.IntVar(&l.burst, "burst", 0, "requests of a client address at once; 0 = twice the --rate")
	f.DurationVar(&l.maxWait, "max-wait", leaseserver.DefaultMaxWait, "longest wait for a lock; the server cuts longer waits to it")
	f.IntVar(&l.waiters, "max-waiters", leaseserver.DefaultMaxWaiters, "requests that can wait at a time")
	f.Int64Var(&l.body, "max-body", leaseserver.DefaultMaxBody, "largest body of a request in `bytes`")
	f.DurationVar(&l.storeTimeout, "store-timeout", leaseserver.DefaultStoreTimeout, "time limit of one operation of the store")
}

// set copies the limits to the configuration of a server.
func (l *limits) set(c *leaseserver.Config) error {
	switch {
	case l.rate < 0, math.IsNaN(l.rate), math.IsInf(l.rate, 0):
		return program.UsageError("--rate is %v: use requests per second, or 0 for no limit", l.rate)
	case l.burst < 0:
		return program.UsageError("--burst is %d: use 1 or more, or 0 for twice the --rate", l.burst)
	case l.burst > 0 && l.rate == 0:
		return program.UsageError("--burst is %d without a --rate: give both", l.burst)
	case l.maxWait <= 0:
		return program.UsageError("--max-wait is %v: use a positive duration", l.maxWait)
	case l.waiters <= 0:
		return program.UsageError("--max-waiters is %d: use 1 or more", l.waiters)
	case l.body <= 0:
		return program.UsageError("--max-body is %d: use 1 or more", l.body)
	case l.storeTimeout <= 0:
		return program.UsageError("--store-timeout is %v: use a positive duration", l.storeTimeout)
	}
	c.Rate, c.Burst, c.MaxWait, c.MaxWaiters, c.MaxBody, c.StoreTimeout = l.rate, l.burst, l.maxWait, l.waiters, l.body, l.storeTimeout
	return nil
}
