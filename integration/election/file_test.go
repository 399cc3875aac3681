//go:build integration

package election

import (
	"context"
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
