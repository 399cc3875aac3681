//go:build integration

package election

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/file"
)

// standOnFile is the role with the settings path and repair.
func standOnFile(ctx context.Context, c *electiontest.Child) error {
	backend := file.NewBackend(c.Settings["path"])
	if c.Settings["repair"] != "" {
		backend = backend.WithRepair()
	}
	return c.Stand(ctx, backend, nil)
}

// An electionFile is the file of an election, as a test handles it.
type electionFile struct {
	path string
	lock *flock.Flock
}

func newElectionFile(t *testing.T) electionFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leader.json")
	return electionFile{path, flock.New(path + ".lock")}
}

// setup is eight processes on one file. What a dead leader held must expire.
func (f electionFile) setup() electiontest.Setup {
	killed, suspended := electiontest.Killed(ttl, attempt), electiontest.Suspended(ttl, attempt)
	return electiontest.Setup{
		Least: 8, Most: 8,
		Join: func(n *electiontest.Node) {
			n.Job.Role, n.Job.Settings = "file", map[string]string{"path": f.path}
		},
		Faults: []electiontest.Fault{
			killed, suspended, electiontest.Deposed(0, attempt), electiontest.Retired(0, attempt), f.held(), f.torn(),
		},
		Also: []electiontest.Fault{killed, suspended},
		Free: func() bool {
			_, ok, err := file.NewBackend(f.path).Leader(context.Background())
			return err == nil && !ok
		},
	}
}

// held is a lock that a process holds for longer than the lease, because it is stopped
// or its disk hangs. The others take it, and the leader goes on or is followed.
func (f electionFile) held() electiontest.Fault {
	return electiontest.Fault{
		Name: "lock held", Fixed: ttl, Quick: attempt, Survivable: true,
		Strike: func(c *electiontest.Cluster, _ *electiontest.Node) func() {
			f.locked(c.T, func() { <-time.After(ttl * 3 / 2) })
			return func() {}
		},
	}
}

// torn is a record that was cut off, and then is restored or removed. If it is
// removed, whoever may have led is waited for.
func (f electionFile) torn() electiontest.Fault {
	return electiontest.Fault{
		Name: "torn", Fixed: ttl, Quick: attempt, Outage: true,
		Strike: func(c *electiontest.Cluster, _ *electiontest.Node) func() {
			whole, part := f.tear(c)
			<-time.After(ttl * 3 / 2)
			for _, n := range c.Nodes {
				await.Until(c.T, patience, func() bool { return strings.Contains(n.LastError(), "is corrupt") }, "node %d", n.Job.Node)
			}
			f.locked(c.T, func() {
				assert.Equal(c.T, part, f.read(c.T), "what could not be read was overwritten")
				if c.Random.IntN(2) == 0 {
					require.NoError(c.T, os.WriteFile(f.path, whole, 0o600))
				} else {
					require.NoError(c.T, os.Remove(f.path))
				}
			})
			return func() {}
		},
	}
}

// tear cuts the record off. The last two bytes can be missed.
func (f electionFile) tear(c *electiontest.Cluster) (whole, part []byte) {
	c.T.Helper()
	f.locked(c.T, func() {
		whole = f.read(c.T)
		part = whole[:c.Random.IntN(len(whole)-2)]
		require.NoError(c.T, os.WriteFile(f.path, part, 0o600))
	})
	return whole, part
}

func (f electionFile) read(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(f.path)
	require.NoError(t, err)
	return data
}

// locked does something while no process of the election can change the file.
func (f electionFile) locked(t *testing.T, work func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := f.lock.TryLockContext(ctx, time.Millisecond/10)
	require.NoError(t, err)
	work()
	require.NoError(t, f.lock.Unlock())
}

func TestOneLeadsOnAFileWhateverHappens(t *testing.T) {
	electiontest.Play(t, newElectionFile(t).setup())
}

func TestWithoutContextsLeadersOnAFileOverlap(t *testing.T) {
	f := newElectionFile(t)
	electiontest.Control(t, f.setup(), electiontest.Suspended(ttl, attempt))
}

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
