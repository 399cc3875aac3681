package kubernetes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/pglatch/pglatch/internal/boottime"
)

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
