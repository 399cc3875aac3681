package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/leaseload"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// What the parent tells a child that is a lock server.
const (
	childPath  = "PGLATCH_SQLITE_CHILD" // of the file
	childServe = "PGLATCH_SQLITE_SERVE" // its address
	childEarly = "PGLATCH_SQLITE_EARLY" // answer before the commit
)

// serveChild serves a store until it is killed, and says when it begins. It sweeps all
// the while, and soon forgets.
func serveChild(path, address string) error {
	ctx := context.Background()
	open := func() (*sqlite.Store, error) { return sqlite.Open(ctx, path, sqlite.Config{}) }
	if os.Getenv(childEarly) != "" {
		open = func() (*sqlite.Store, error) { return sqlite.OpenEarly(ctx, path, 20*time.Millisecond) }
	}
	store, err := open()
	if err != nil {
		return err
	}
	server, err := leaseserver.New(leaseserver.Config{Store: store, SweepInterval: 20 * time.Millisecond, Retention: time.Second})
	if err != nil {
		return err
	}
	if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) { // of the process before
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", address)
	if err != nil {
		return err
	}
	fmt.Println("serving")
	return server.Serve(ctx, listener)
}

// A lockServer is a process that is killed and started again, at one socket: a port could be another's meanwhile.
type lockServer struct {
	path, address string
	forgetful     bool // loses the WAL when it is killed
	early         bool // answers before the commit
	process       *proctest.Process

	mu sync.Mutex
	up chan struct{} // closed = it serves
}

func newLockServer(t *testing.T, set func(*lockServer)) *lockServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "pglatch") //nolint:usetesting // the name of a test is too long for the path of a socket
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	s := &lockServer{path: newPath(t), address: filepath.Join(dir, "socket"), up: make(chan struct{})}
	set(s)
	s.start(t)
	return s
}

func (s *lockServer) start(t *testing.T) {
	t.Helper()
	env := []string{childPath + "=" + s.path, childServe + "=" + s.address}
	if s.early {
		env = append(env, childEarly+"=1")
	}
	s.process = proctest.Start(t, proctest.Self(t, env...))
	s.process.Expect("serving")
	close(s.up)
}

func (s *lockServer) kill(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	s.up = make(chan struct{})
	s.mu.Unlock()
	s.process.Signal(syscall.SIGKILL)
	require.Equal(t, 128+9, s.process.Wait())
	if s.forgetful {
		require.NoError(t, os.Remove(s.path+"-wal"))
	}
}

// await returns when the server serves: what is asked for while it does not would only
// make the history long.
func (s *lockServer) await(ctx context.Context) {
	s.mu.Lock()
	up := s.up
	s.mu.Unlock()
	select {
	case <-up:
	case <-ctx.Done():
	}
}

// grantsPerKill is how many leases are granted between two kills.
const grantsPerKill = 200

// load kills the server so often under load.
func (s *lockServer) load(t *testing.T, kills int) *leaseload.Load {
	t.Helper()
	c := leaseload.Config{Prefix: fmt.Sprint("job-", rand.Uint64()), TTL: 2 * time.Second, Ready: s.await}
	for range 12 {
		// A call that is sent again is not one operation: between the two others have their turn.
		client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"unix://" + s.address}, Resends: -1})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		c.Stores = append(c.Stores, leaseload.Remote{Client: client})
	}
	l := leaseload.Start(t, c)
	for range kills {
		l.Await(grantsPerKill)
		s.kill(t)
		s.start(t)
	}
	l.Await(grantsPerKill)
	return l
}

func TestKilledUnderLoadNothingAcknowledgedIsLostOrGrantedTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form of the tests")
	}
	t.Parallel()
	newLockServer(t, func(*lockServer) {}).load(t, soak.Size(t, 3, 30)).RequireLegal(t.Context())
}

// The control: what a server forgets that loses a part of its file is found out, and what one forgets that answers before
// its commit.
func TestKilledUnderLoadAServerThatForgetsHasAnIllegalHistory(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*lockServer){
		"it loses its WAL": func(s *lockServer) { s.forgetful = true },
		"it answers early": func(s *lockServer) { s.early = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLockServer(t, set)
			for range 30 {
				l := s.load(t, 1)
				l.Stop()
				lost := l.RenewKept(t.Context())
				if err := l.History.Check(soak.Size(t, time.Minute, 10*time.Minute)); errors.Is(err, leasetest.ErrIllegal) {
					t.Logf("%d kept leases are lost", lost)
					return
				}
			}
			t.Error("nothing was found in 30 kills")
		})
	}
}
