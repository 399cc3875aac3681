//go:build integration

package election

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/file"
)

// With repair a torn record is replaced and kept aside, and the leader whose it was is
// waited for: its context ends lease after its last renewal at the latest.
func TestCandidatesThatRepairReplaceATornRecord(t *testing.T) {
	f := newElectionFile(t)
	setup := f.setup()
	join := setup.Join
	setup.Join = func(n *electiontest.Node) {
		join(n)
		n.Job.Settings["repair"] = "yes"
	}
	torn := electiontest.Fault{
		Name: "torn", Fixed: 2 * ttl, Quick: attempt,
		Strike: func(c *electiontest.Cluster, _ *electiontest.Node) func() {
			f.tear(c)
			return func() {}
		},
	}
	c := electiontest.NewCluster(t, setup)
	c.Open(4, func(*electiontest.Job) {})
	const rounds = 5
	for range rounds {
		c.Round(torn)
	}
	c.Close()
	assert.Empty(t, c.Late())
	kept, err := filepath.Glob(f.path + ".corrupt-*")
	require.NoError(t, err)
	assert.Len(t, kept, rounds)
}

// hammerLease is short, so that nobody waits for a dead writer.
const hammerLease = 20 * time.Millisecond

// hammerFile is a role that writes as often as it can.
func hammerFile(ctx context.Context, c *electiontest.Child) error {
	backend := file.NewBackend(c.Settings["path"])
	for {
		led, err := backend.TryAcquire(ctx, c.Identity(), hammerLease)
		if err != nil {
			return err
		}
		if !led {
			continue
		}
		c.Say("acquired", backend.Term())
		if err := backend.Renew(ctx, c.Identity(), hammerLease); err != nil && !errors.Is(err, leader.ErrLost) {
			return err
		}
		if err := backend.Release(ctx, c.Identity()); err != nil {
			return err
		}
		c.Say("released", backend.Term())
	}
}

// Wherever a process dies in a write, the next one can read the file, and terms rise.
func TestAProcessThatIsKilledInTheMiddleOfAWriteLeavesAWholeFile(t *testing.T) {
	f := newElectionFile(t)
	random := electiontest.NewCluster(t, electiontest.Setup{}).Random
	kills, drafts := electiontest.Rounds(t), make(map[string]bool)
	for i := 0; i < kills || len(drafts) == 0 && i < 10*kills; i++ {
		n := electiontest.NewNode(t, electiontest.Job{Role: "hammer", Settings: map[string]string{"path": f.path}})
		n.Start()
		until(t, "it writes", func() bool { return n.Said("released", "failed") > 0 })
		electiontest.Pause(t.Context(), time.Duration(random.Int64N(int64(10*time.Millisecond))))
		n.Kill()
		require.Zero(t, n.Said("failed"))
		left, err := filepath.Glob(f.path + "*.tmp-*")
		require.NoError(t, err)
		for _, name := range left {
			drafts[name] = true
		}
		next := file.NewBackend(f.path)
		until(t, "another leads", func() bool {
			led, err := next.TryAcquire(t.Context(), "next", hammerLease)
			require.NoError(t, err)
			return led
		})
		require.Positive(t, next.Term().Compare(n.Term()), "%v after %v", next.Term(), n.Term())
		require.NoError(t, next.Release(t.Context(), "next"))
	}
	t.Logf("%d of %d were killed between the begin of a write and its rename", len(drafts), kills)
	assert.NotEmpty(t, drafts, "nobody was killed in the middle")
}
