package leadertest_test

import (
	"testing"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
)

func harness(wrap func(*leadertest.Backend) driver.Backend) leadertest.Harness {
	return leadertest.Harness{
		TTL: time.Second,
		New: func(*testing.T) func() driver.Backend {
			election := leadertest.NewElection()
			return func() driver.Backend { return wrap(election.Backend()) }
		},
	}
}

func TestTheElectionInMemoryConforms(t *testing.T) {
	t.Parallel()
	h := harness(func(b *leadertest.Backend) driver.Backend { return b })
	h.Kill = func(_ *testing.T, b driver.Backend) { b.(*leadertest.Backend).Kill() }
	h.Cut = func(_ *testing.T, b driver.Backend) func() {
		b.(*leadertest.Backend).Cut()
		return b.(*leadertest.Backend).Heal
	}
	leadertest.Run(t, h)
}

func TestABackendWithoutAbilitiesConforms(t *testing.T) {
	t.Parallel()
	leadertest.Run(t, harness(func(b *leadertest.Backend) driver.Backend { return struct{ driver.Backend }{b} }))
}
