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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// childServe tells a child that it is a lock server, and its address.
const childServe = "PGLATCH_SQLITE_SERVE"

// serveChild serves a store until it is killed, and says when it begins. It sweeps all
// the while, and soon forgets.
func serveChild(path, address string) error {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, path, sqlite.Config{})
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
	process       *proctest.Process

	mu sync.Mutex
	up chan struct{} // closed = it serves
}

func newLockServer(t *testing.T) *lockServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "pglatch") //nolint:usetesting // the name of a test is too long for the path of a socket
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	s := &lockServer{path: newPath(t), address: filepath.Join(dir, "socket"), up: make(chan struct{})}
	s.start(t)
	return s
}

func (s *lockServer) start(t *testing.T) {
	t.Helper()
	s.process = proctest.Start(t, proctest.Self(t, childPath+"="+s.path, childServe+"="+s.address))
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

// operationsPerKill is how many calls are answered between two kills.
const operationsPerKill = 350

// recordKills kills the server so often under the load of some clients, and returns what
// they heard.
func recordKills(t *testing.T, s *lockServer, kills int) (history *leasetest.History, calls int64) {
	t.Helper()
	history = leasetest.NewHistory()
	names := fmt.Sprint("job-", rand.Uint64())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var answered atomic.Int64
	enough := make(chan struct{}, 1)
	var clients sync.WaitGroup
	for i := range 8 {
		// A call that is sent again is not one operation: between the two others have their turn.
		remote, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"unix://" + s.address}, Resends: -1})
		require.NoError(t, err)
		defer remote.Close()
		c := historyClient{store: history.Client(unswept{remote}), holder: fmt.Sprint("client-", i), names: names, answered: func() {
			if answered.Add(1)%operationsPerKill == 0 {
				select {
				case enough <- struct{}{}:
				default:
				}
			}
		}}
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s.await(ctx)
				c.turn(context.WithoutCancel(ctx), n)
			}
		})
	}
	for range kills {
		<-enough
		s.kill(t)
		s.start(t)
	}
	<-enough
	cancel()
	clients.Wait()
	return history, answered.Load()
}

// unswept is a lock server's client as a store: it sweeps by itself.
type unswept struct{ *leasehttp.Client }

func (unswept) Sweep(context.Context, lease.SweepRequest) (lease.SweepResult, error) {
	return lease.SweepResult{}, errors.ErrUnsupported
}

type historyClient struct {
	store    lease.Store
	holder   string
	names    string // of the history, so that nobody had them before
	answered func()
}

// turn acquires one of some names, new ones at times because a call of which the outcome
// is unknown makes the check of a name slow, renews it at times, and releases it or leaves
// it to expire.
func (c *historyClient) turn(ctx context.Context, n int) {
	ttl := time.Duration(500+rand.IntN(1500)) * time.Millisecond
	l, err := c.store.Acquire(ctx, lease.AcquireRequest{Name: fmt.Sprintf("%s-%d-%d", c.names, n/60, rand.IntN(6)), Holder: c.holder, TTL: ttl})
	if c.heard(err); err != nil {
		return
	}
	if rand.IntN(2) == 0 {
		_, err := c.store.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: ttl})
		c.heard(err)
	}
	if rand.IntN(20) > 0 {
		c.heard(c.store.Release(ctx, l.Claim))
	}
}

func (c *historyClient) heard(err error) {
	for _, answer := range []error{nil, lease.ErrHeld, lease.ErrExpired, lease.ErrStale, lease.ErrNotFound} {
		if errors.Is(err, answer) {
			c.answered()
			return
		}
	}
}

func TestKilledUnderLoadALockServersHistoryIsLegal(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form of the tests")
	}
	t.Parallel()
	kills := soak.Size(t, 3, 30)
	history, calls := recordKills(t, newLockServer(t), kills)
	require.NoError(t, history.Check(time.Minute))
	t.Logf("%d kills, %d answers, %+v", kills, calls, history.Counts())
	require.Positive(t, history.Counts().Granted)
	require.Positive(t, history.Counts().Refused)
}

// The control: what a server forgets that loses a part of its file is found out.
func TestKilledUnderLoadALockServerThatLosesItsWALHasAnIllegalHistory(t *testing.T) {
	t.Parallel()
	s := newLockServer(t)
	s.forgetful = true
	for range 10 {
		if history, _ := recordKills(t, s, 1); errors.Is(history.Check(time.Minute), leasetest.ErrIllegal) {
			return
		}
	}
	t.Error("nothing was found in 10 kills")
}
