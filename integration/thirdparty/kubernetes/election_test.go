//go:build linux

package kubernetes

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/pglatch/pglatch/internal/test/electiontest"
)

// longest is how long the lease of a leader that is gone lasts, ours or client-go's:
// a renewal of ours may last a second longer.
const longest = max(theirLease, electiontest.Lease+time.Second)

// quick is an attempt, and the wait for it, on an idle machine.
const quick = 2*theirRetry + electiontest.RetryAtMost + electiontest.RenewTimeout

func leases(t *testing.T) coordinationclient.LeaseInterface {
	t.Helper()
	client, err := clientset.NewForConfig(plain(cluster.config))
	require.NoError(t, err)
	return client.CoordinationV1().Leases(cluster.namespace)
}

// newSetup has five candidates of ours and five of client-go's on one Lease, or as
// many as most says.
func newSetup(t *testing.T, most int, roles ...string) electiontest.Setup {
	t.Helper()
	name := leaseName()
	api := leases(t)
	// client-go's first term would be 0, which is none.
	nobody, seconds, first := "", int32(1), int32(0)
	_, err := api.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &nobody, LeaseDurationSeconds: &seconds, LeaseTransitions: &first},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return electiontest.Setup{
		Least: most, Most: most,
		Join: func(n *electiontest.Node) { prepare(n, name, roles[n.Job.Node%len(roles)]) },
		Free: func() bool {
			lease, err := api.Get(context.Background(), name, metav1.GetOptions{})
			return err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == ""
		},
	}
}

func oursOnly(j electiontest.Job) bool { return j.Role == "ours" }

// apiStopped is an API server that is down for longer than all leases.
func apiStopped() electiontest.Fault {
	return electiontest.Fault{
		Name: "API stopped", Outage: true, Fixed: longest, Quick: 2 * quick,
		Strike: func(c *electiontest.Cluster, _ *electiontest.Node) func() {
			cluster.stop()
			<-time.After(longest + time.Duration(c.Random.Int64N(int64(time.Second))))
			require.NoError(c.T, cluster.start())
			return func() {}
		},
	}
}

// apiSlow is an API that answers late for a while: at times too late.
func apiSlow() electiontest.Fault {
	return electiontest.Fault{
		Name: "API slow", Outage: true, Survivable: true, Fixed: longest, Quick: 2 * quick,
		Strike: func(c *electiontest.Cluster, _ *electiontest.Node) func() {
			delay := time.Duration(c.Random.Int64N(int64(electiontest.RenewTimeout)))
			for _, n := range c.Nodes {
				n.Proxy.Delay(delay)
			}
			<-time.After(theirLease)
			for _, n := range c.Nodes {
				n.Proxy.Delay(0)
			}
			return func() {}
		},
	}
}

func faults() []electiontest.Fault {
	suspended := electiontest.Suspended(longest, quick)
	suspended.Fits = oursOnly // client-go promises nothing then
	all := []electiontest.Fault{
		electiontest.Killed(longest, quick), suspended, electiontest.CutOff(longest, quick),
		electiontest.Deposed(0, quick), electiontest.Retired(0, quick), apiSlow(),
	}
	if cluster.stop != nil {
		all = append(all, apiStopped())
	}
	return all
}

// Five candidates of ours and five of client-go's stand for one election.
func TestOneLeadsOfOursAndClientGosWhateverHappens(t *testing.T) {
	g := newSetup(t, 10, "ours", "client-go")
	g.Faults = faults()
	g.Also = []electiontest.Fault{g.Faults[0], g.Faults[1]}
	electiontest.Play(t, g)
}

// The control: leaders that do not look at their context are caught.
func TestRecklessLeadersAreCaught(t *testing.T) {
	electiontest.Control(t, newSetup(t, 3, "ours"), electiontest.Suspended(longest, quick))
}
