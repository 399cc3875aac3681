package kubernetes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/pglatch/pglatch/internal/boottime"
)

// IdentityOf is what Leader returns of a holder.
var IdentityOf = identityOf

// Watching reports whether a watch is open. No other method may be under way.
func Watching(b *Backend) bool { return b.watch != nil }

// A Renewer renews a Lease as a Backend does, by clocks that a test sets.
type Renewer struct{ last stamp }

// Renew returns the Lease, renewed.
func (r *Renewer) Renew(l *coordinationv1.Lease, wall time.Time, boot time.Duration, seconds int32) *coordinationv1.Lease {
	if r.last == (stamp{}) {
		r.last = stamp{l.Spec.RenewTime.Time, 0}
	}
	r.last, seconds = r.last.follow(stamp{wall, boot}, seconds)
	return renewed(l, r.last, seconds)
}

// A follower on a machine that was suspended does not wait for what passed meanwhile.
func TestALeaseExpiresWhileTheFollowersMachineIsSuspended(t *testing.T) {
	t.Parallel()
	holder, seconds := "a", int32(3600)
	s := sight{
		lease: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds}},
		since: boottime.Present(),
	}
	assert.Greater(t, s.left(0), 30*time.Minute, "the control")
	s.since.Boot -= time.Hour
	assert.Zero(t, s.left(0))
}
