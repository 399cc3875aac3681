package kubernetes_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/leader/kubernetes"
)

type renewer interface {
	Renew(l *coordinationv1.Lease, wall time.Time, boot time.Duration, seconds int32) *coordinationv1.Lease
}

// plain is the control: what a Backend would write without more ado.
type plain struct{}

func (plain) Renew(l *coordinationv1.Lease, wall time.Time, _ time.Duration, _ int32) *coordinationv1.Lease {
	next, stamp := l.DeepCopy(), metav1.NewMicroTime(wall)
	next.Spec.RenewTime = &stamp
	return next
}

// early replays renewals, by a leader whose wall clock is set now and then, before an
// observer that looks now and then and compares as client-go's electors do. It returns
// by how much the observer took the lease for expired too early, at most.
func early(random *rand.Rand, step time.Duration, leader renewer) (worst time.Duration) {
	const ttl = time.Second
	start := time.Unix(1_000_000, 0)
	at, skew := start, time.Duration(0)
	seconds, stamp, holder, transitions := int32(ttl/time.Second), metav1.NewMicroTime(at), "a", int32(1)
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &stamp, AcquireTime: &stamp, LeaseTransitions: &transitions,
	}}
	var last string
	var observed time.Time
	for range 300 {
		next := at.Add(time.Duration(random.Int64N(int64(step))))
		for look := at; look.Before(next); look = look.Add(time.Duration(random.Int64N(int64(time.Second)))) {
			record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
			raw, _ := json.Marshal(record)
			if string(raw) != last {
				last, observed = string(raw), look
			}
			expiry := observed.Add(time.Duration(record.LeaseDurationSeconds) * time.Second)
			worst = max(worst, at.Add(ttl).Sub(expiry))
		}
		at = next
		if random.IntN(20) == 0 {
			skew = time.Duration(random.Int64N(int64(4*time.Second))) - 2*time.Second
		}
		lease = leader.Renew(lease, at.Add(skew), at.Sub(start), seconds)
	}
	return worst
}

func TestClientGoNeverExpectsTheEndOfALeaseTooEarly(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var control time.Duration
	for _, step := range []time.Duration{100 * time.Millisecond, 700 * time.Millisecond, 5 * time.Second} {
		for range soak.Size(t, 30, 300) {
			require.LessOrEqual(t, early(random, step, new(kubernetes.Renewer)), time.Duration(0))
		}
	}
	for i := 0; i < 900 && control <= 500*time.Millisecond; i++ {
		control = max(control, early(random, 700*time.Millisecond, plain{}))
	}
	require.Greater(t, control, 500*time.Millisecond, "the control")
	t.Log("control: early by", control)
}

func TestOnlyItsOwnSuffixIsHiddenFromAnIdentity(t *testing.T) {
	t.Parallel()
	for holder, identity := range map[string]string{
		"node-1_abcdefghij234567":                   "node-1",
		"a_b_abcdefghij234567":                      "a_b",
		"_abcdefghij234567":                         "",
		"host_d5a6ca1e-6b8f-4d8a-9f6e-1c1c5f1f2d3e": "host_d5a6ca1e-6b8f-4d8a-9f6e-1c1c5f1f2d3e",
		"host_ABCDEFGHIJ234567":                     "host_ABCDEFGHIJ234567",
		"":                                          "",
	} {
		assert.Equal(t, identity, kubernetes.IdentityOf(holder))
	}
}
