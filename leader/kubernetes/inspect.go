package kubernetes

import (
	"context"

	"github.com/pglatch/pglatch/leader/driver"
)

// Leader implements driver.Inspector. It shows a holder of client-go's electors unchanged; such a holder has
// no term if it created the Lease. Nobody leads if the record did not change for its duration, as far as this
// process has seen it.
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
