package leased

import (
	"context"
	"errors"
	"iter"
	"time"

	leaderdriver "github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/lease"
)

// A Store is what shards need of a lease.Store. A *leasehttp.Client has it too. One that is a
// lease.BatchRenewer renews all leases of a node in one operation.
type Store interface {
	Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error)
	Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error)
	Release(ctx context.Context, c lease.Claim) error
	Get(ctx context.Context, name string) (lease.Record, error)
	List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error]
}

// A WatchedStore lets a request wait for a change of a lease, as a *leasehttp.Client does: by it
// nodes hear of each other. On a lease.Messenger they do by messages; on other stores they look from time to time.
type WatchedStore interface {
	Store
	GetAfter(ctx context.Context, name string, version uint64, wait time.Duration) (lease.Record, error)
}

// A Config names a group of shards.
type Config struct {
	// Name is what the names of the group's leases begin with: Name/shard/… and Name/group/…; see
	// lease.ValidateName. It is the same for all nodes, and no other group's. Required.
	Name string
}

// validated returns an error that names the field which is wrong.
func (c Config) validated(store Store) error {
	if store == nil {
		return errors.New("shards: the store is nil: pass one, such as that of lease/postgres")
	}
	if invalid, ok := errors.AsType[*lease.InvalidError](lease.ValidateName(c.Name)); ok {
		return &leaderdriver.ConfigError{Field: "Name", Value: invalid.Value, Remedy: invalid.Remedy}
	}
	return nil
}
