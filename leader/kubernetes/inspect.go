package kubernetes

import (
	"context"

	"github.com/pglatch/pglatch/leader/driver"
)

// Leader implements driver.Inspector. If the leader is an elector of client-go, Leader returns its identity
// unchanged, without a term if that elector created the Lease. If this process has seen the record unchanged
// for the lease's duration, Leader reports that nobody leads.
func (b *Backend) Leader(ctx context.Context) (holder driver.Holder, ok bool, err error) {
	s, err := b.glance(ctx)
	if err != nil || s.left(driver.DefaultLeaseDuration) == 0 {
		return driver.Holder{}, false, err
	}
	name := value(s.lease.Spec.HolderIdentity)
	return driver.Holder{
		Identity: identityOf(name), Term: termOf(s.lease), Since: value(s.lease.Spec.AcquireTime).Time,
		Detail: "Lease " + b.namespace + "/" + b.name + ", holder " + name,
	}, true, nil
}
