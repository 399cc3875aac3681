package leased

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/lease"
)

// The default of Config.PollInterval, and its lower limit.
const (
	DefaultPollInterval = 250 * time.Millisecond
	MinPollInterval     = 20 * time.Millisecond
)

// A Store is the part of a lease.Store that an election needs. A *leasehttp.Client implements it too.
type Store interface {
	Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error)
	Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error)
	Release(ctx context.Context, c lease.Claim) error
	Get(ctx context.Context, name string) (lease.Record, error)
}

// A WaitingStore lets a request wait for its lease, as a *leasehttp.Client does. AcquireWait is an Acquire
// that fails with *lease.HeldError only when wait is over.
type WaitingStore interface {
	Store
	AcquireWait(ctx context.Context, r lease.AcquireRequest, wait time.Duration) (lease.Lease, error)
}

// A Config configures a Backend. Name is required. The zero value of every other field is a good
// default.
type Config struct {
	// Name is the lock whose holder leads; see lease.ValidateName. It is the same for all candidates.
	Name string

	// PollInterval is the approximate time between a follower's requests. On a WaitingStore, a request asks
	// for a place in the queue, which the follower keeps for that long. On other stores, it asks whether the
	// lock is free. 0 = 250 ms; 20 ms at least.
	PollInterval time.Duration
}

// validated returns c with its defaults.
func (c Config) validated(store Store) (Config, error) {
	c.PollInterval = cmp.Or(c.PollInterval, DefaultPollInterval)
	if store == nil {
		return c, errors.New("leader: the store is nil: pass one, such as that of lease/postgres")
	}
	if invalid, ok := errors.AsType[*lease.InvalidError](lease.ValidateName(c.Name)); ok {
		return c, &driver.ConfigError{Field: "Name", Value: invalid.Value, Remedy: invalid.Remedy}
	}
	if c.PollInterval < MinPollInterval {
		return c, &driver.ConfigError{Field: "PollInterval", Value: c.PollInterval, Remedy: fmt.Sprintf("use %v at least, or 0 for the default of %v", MinPollInterval, DefaultPollInterval)}
	}
	return c, nil
}
