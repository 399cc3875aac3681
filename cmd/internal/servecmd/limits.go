package servecmd

import (
	"cmp"
	"math"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// addLimits adds the flags that bound the requests of clients.
func addLimits(f *pflag.FlagSet, c *leaseserver.Config) {
	f.Float64Var(&c.Rate, "rate", 0, "requests per second of a client address, on average; 0 = no limit")
	f.IntVar(&c.Burst, "burst", 0, "requests of a client address at once; 0 = twice the --rate")
	f.DurationVar(&c.MaxWait, "max-wait", leaseserver.DefaultMaxWait, "longest wait for a lock; the server cuts longer waits to it")
	f.IntVar(&c.MaxWaiters, "max-waiters", leaseserver.DefaultMaxWaiters, "requests that can wait at a time")
	f.Int64Var(&c.MaxBody, "max-body", leaseserver.DefaultMaxBody, "largest body of a request in `bytes`")
	f.DurationVar(&c.StoreTimeout, "store-timeout", leaseserver.DefaultStoreTimeout, "time limit of one operation of the store")
}

func checkLimits(c *leaseserver.Config) error {
	switch {
	case c.Rate < 0, math.IsNaN(c.Rate), math.IsInf(c.Rate, 0):
		return program.UsageError("--rate is %v: use requests per second, or 0 for no limit", c.Rate)
	case c.Burst < 0:
		return program.UsageError("--burst is %d: use 1 or more, or 0 for twice the --rate", c.Burst)
	case c.Burst > 0 && c.Rate == 0:
		return program.UsageError("--burst is %d without a --rate: give both", c.Burst)
	}
	return cmp.Or(
		program.Positive("max-wait", c.MaxWait), program.AtLeastOne("max-waiters", c.MaxWaiters),
		program.AtLeastOne("max-body", c.MaxBody), program.Positive("store-timeout", c.StoreTimeout),
	)
}
