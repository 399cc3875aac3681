//go:build integration

package election

import (
	"cmp"
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// The times of all candidates. What has no need of a short lease has a calm one,
// which no pause of a busy machine ends.
const (
	calm     = 10 * time.Second
	ttl      = electiontest.Lease
	retry    = electiontest.Retry
	patience = await.Patience

	// An attempt, by one that polls because its last attempt failed.
	attempt = electiontest.RetryAtMost + electiontest.RenewTimeout
)

var election = namespace.Pair(9, 1)

func TestMain(m *testing.M) {
	electiontest.Main(map[string]electiontest.Role{
		"postgres": standOnPostgres, "file": standOnFile, "hammer": hammerFile,
		"lock server": serveLocks, "lock client": standOnLockServer, "lease/postgres": standOnPostgresLease,
	})
	pgtest.Main(m)
}

// newElector fills in what all electors have in common.
func newElector(identity string, backend postgres.Config, config leader.Config) (*leader.Elector, error) {
	backend.Key, backend.CreateTable = election, true
	b, err := postgres.New(backend)
	if err != nil {
		return nil, err
	}
	config.Name, config.Backend, config.Identity = "election", b, identity
	config.LeaseDuration, config.Retry = cmp.Or(config.LeaseDuration, calm), backoff.Fixed{Interval: retry}
	return leader.New(config)
}

// until waits until a condition holds.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	await.Until(t, patience, condition, what)
}

// receive waits for one value.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	return await.Receive(t, patience, from, what)
}
