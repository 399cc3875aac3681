package kubernetes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/pglatch/pglatch/leader/kubernetes/internal/apitest"
)

func leasesOf(t *testing.T, server *apitest.Server) coordinationclient.LeaseInterface {
	t.Helper()
	return newClient(t, server.Config()).CoordinationV1().Leases(namespace)
}

// A record is worth its duration from when it was first seen, whatever it says
// about the time: an hour ago would be expired, and an hour from now would last one.
func TestTheClockOfTheLeaderIsNotTrusted(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]time.Duration{"slow": -time.Hour, "fast": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newServer(t)
			holder, seconds, stamp := "stranger", int32(3), metav1.NewMicroTime(time.Now().Add(wrong))
			_, err := leasesOf(t, server).Create(t.Context(), &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: "election"},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &stamp},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			b := newBackend(t, server)
			began := time.Now()
			refuse(t, b, "b")
			require.NoError(t, receive(t, waiting(t, b)))
			assert.GreaterOrEqual(t, time.Since(began), 3*time.Second)
			lead(t, b, "b")
			assert.Equal(t, uint64(1), b.Term().Uint64())
		})
	}
}

// Somebody labels the Lease of a leader that is gone, again and again.
func TestAWriteThatIsNoRenewalProlongsNothing(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	a, b := newBackend(t, server), newBackend(t, server)
	won, err := a.TryAcquire(within(t), "a", 5*time.Second)
	require.NoError(t, err)
	require.True(t, won)
	refuse(t, b, "b")
	over := waiting(t, b)
	api := leasesOf(t, server)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for labels := 0; ; labels++ {
		select {
		case err := <-over:
			require.NoError(t, err)
			require.Positive(t, labels)
			lead(t, b, "b")
			return
		case <-tick.C:
			l := server.Lease(namespace, name)
			metav1.SetMetaDataLabel(&l.ObjectMeta, "seen", time.Now().Format("150405.000000"))
			_, err := api.Update(t.Context(), l, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.Less(t, labels, 1000, "it is prolonged")
		}
	}
}
