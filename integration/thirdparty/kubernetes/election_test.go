//go:build linux

package kubernetes

import (
	"context"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/leader/kubernetes"
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

// The times of client-go's electors. They see the record of a lease change in whole
// seconds: the lease is longer than the others by more than one.
const (
	theirLease         = 3 * time.Second
	theirRenewDeadline = 1200 * time.Millisecond
	theirRetry         = 200 * time.Millisecond
)

// prepare gives a node its role, and a way of its own to the API.
func prepare(n *electiontest.Node, lease, role string) {
	n.Job.Role = role
	n.Job.Settings = map[string]string{
		"kubeconfig": cluster.kubeconfig, "namespace": cluster.namespace, "lease": lease,
		"host": n.Through(cluster.config.Host),
	}
}

// plain is a config whose clients do not wait for each other, and speak JSON, as
// custom resources do.
func plain(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.ContentType, config.AcceptContentTypes = -1, runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return config
}

// reach is what the settings of a job say of the API.
func reach(c *electiontest.Child) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Settings["kubeconfig"])
	if err != nil {
		return nil, err
	}
	if _, config.ServerName, err = hostOf(config); err != nil {
		return nil, err
	}
	config.Host = c.Settings["host"]
	return plain(config), nil
}

// ours is a candidate with an Elector of package leader.
func ours(ctx context.Context, c *electiontest.Child) error {
	config, err := reach(c)
	if err != nil {
		return err
	}
	b, err := kubernetes.NewFromConfig(config, c.Settings["namespace"], c.Settings["lease"])
	if err != nil {
		return err
	}
	return c.Stand(ctx, b, nil)
}

// theirs is a candidate with electors of client-go, one after the other. It is
// careful: when it gives leadership up, its work ends first.
func theirs(ctx context.Context, c *electiontest.Child) error {
	config, err := reach(c)
	if err != nil {
		return err
	}
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	stopped, stop := context.WithCancel(ctx)
	defer stop()
	var current atomic.Pointer[stranger]
	resign := func(context.Context) error { current.Load().resign(); return nil }
	halt := func(ctx context.Context) error { stop(); return resign(ctx) }
	for first := true; stopped.Err() == nil; first = false {
		s := &stranger{Child: c, quit: make(chan struct{}), worked: make(chan struct{})}
		current.Store(s)
		if first {
			go c.Obey(ctx, resign, halt)
		}
		if stopped.Err() != nil {
			break // it was reported before there was s
		}
		if err := s.stand(ctx, client); err != nil {
			return err
		}
		if s.resigned() { // others may lead now
			electiontest.Pause(stopped, 2*time.Second)
		}
	}
	c.Say("stopped")
	return nil
}

// hostOf is the address of an API, and the name in its certificate, "" if it has none.
func hostOf(config *rest.Config) (address, name string, err error) {
	server, err := url.Parse(config.Host)
	if err != nil {
		return "", "", err
	}
	if server.Scheme == "https" {
		name = server.Hostname()
	}
	return server.Host, name, nil
}
