//go:build linux

package kubernetes

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/kubernetes"
)

// times are the same for both kinds of candidates.
type times struct{ lease, deadline, retry time.Duration }

var (
	usual = times{15 * time.Second, 10 * time.Second, 2 * time.Second} // client-go's recommendation
	brief = times{3 * time.Second, 1800 * time.Millisecond, 500 * time.Millisecond}
)

// A standing candidate reports when it leads, and stops.
type standing struct {
	leads chan struct{}
	stop  func()
}

type candidateFunc func(b *testing.B, config *rest.Config, lease, identity string, t times) standing

var kinds = map[string]candidateFunc{"pglatch": standOurs, "client-go": standTheirs}

func standOurs(b *testing.B, config *rest.Config, lease, identity string, t times) standing {
	b.Helper()
	backend, err := kubernetes.NewFromConfig(config, cluster.namespace, lease)
	require.NoError(b, err)
	s := standing{leads: make(chan struct{})}
	e, err := leader.New(leader.Config{
		Name: lease, Backend: backend, Identity: identity, LeaseDuration: t.lease, Retry: backoff.Fixed{Interval: t.retry},
		Callbacks: leader.Callbacks{OnAcquired: func(leader.Term) { close(s.leads) }},
	})
	require.NoError(b, err)
	s.stop = func() { _ = e.Shutdown(context.Background()) }
	require.NoError(b, e.Start(context.Background()))
	return s
}

func standTheirs(b *testing.B, config *rest.Config, lease, identity string, t times) standing {
	b.Helper()
	client, err := clientset.NewForConfig(plain(config))
	require.NoError(b, err)
	s := standing{leads: make(chan struct{})}
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: cluster.namespace, Name: lease}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: t.lease, RenewDeadline: t.deadline, RetryPeriod: t.retry, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(s.leads) }, OnStoppedLeading: func() {},
		},
	})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	s.stop = func() { cancel(); running.Wait() }
	return s
}

// follow waits for longer than a follower needs for its first attempt, so that the end
// of the leader meets it somewhere between two of them.
func follow(i int, retry time.Duration) {
	<-time.After(500*time.Millisecond + time.Duration(i%10)*retry/10)
}

// BenchmarkHandover is from the begin of a stop in good order until the other leads.
func BenchmarkHandover(b *testing.B) {
	for kind, stand := range kinds {
		b.Run(kind, func(b *testing.B) {
			measure(b, func(i int) time.Duration {
				lease := leaseName()
				first := stand(b, cluster.config, lease, "first", usual)
				<-first.leads
				second := stand(b, cluster.config, lease, "second", usual)
				follow(i, usual.retry)
				began := time.Now()
				go first.stop()
				<-second.leads
				took := time.Since(began)
				first.stop()
				second.stop()
				return took
			})
		})
	}
}

// BenchmarkFailover is from the moment when the leader is cut off until the other
// leads: what is over of its lease of 3 s.
func BenchmarkFailover(b *testing.B) {
	for kind, stand := range kinds {
		b.Run(kind, func(b *testing.B) {
			measure(b, func(i int) time.Duration {
				lease := leaseName()
				config, cut := cuttable(b)
				first := stand(b, config, lease, "first", brief)
				<-first.leads
				second := stand(b, cluster.config, lease, "second", brief)
				follow(i, brief.retry)
				cut(faultproxy.Hold)
				began := time.Now()
				<-second.leads
				took := time.Since(began)
				cut(faultproxy.Pass)
				first.stop()
				second.stop()
				return took
			})
		})
	}
}

// cuttable is a way to the API that can be cut.
func cuttable(b *testing.B) (*rest.Config, func(faultproxy.Mode)) {
	b.Helper()
	host, name, err := hostOf(cluster.config)
	require.NoError(b, err)
	proxy, err := faultproxy.New(b.Context(), host)
	require.NoError(b, err)
	b.Cleanup(proxy.Close)
	config := rest.CopyConfig(cluster.config)
	config.ServerName = name
	config.Host, err = proxy.URL(config.Host)
	require.NoError(b, err)
	return config, proxy.Set
}

// measure reports the mean and the longest of the times that once returns.
func measure(b *testing.B, once func(i int) time.Duration) {
	b.Helper()
	var sum, longest time.Duration
	for i := range b.N {
		took := once(i)
		sum, longest = sum+took, max(longest, took)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64((sum/time.Duration(b.N)).Microseconds())/1000, "ms/op")
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
}
