package leased_test

import (
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/leased"
)

// Ticks are claimed at a lock server.
func ExampleNew() {
	newRunner := func() (*once.Runner, error) {
		locks, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://127.0.0.1:8080"}})
		if err != nil {
			return nil, err
		}
		return once.New(once.Config{Store: leased.New(locks)})
	}
	_ = newRunner
}
