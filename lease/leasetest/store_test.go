package leasetest_test

import (
	"testing"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestStoreConforms(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, leasetest.Harness{
		New:    func(*testing.T) lease.Store { return leasetest.NewStore() },
		Reopen: func(_ *testing.T, store lease.Store) lease.Store { return store },
	})
}
