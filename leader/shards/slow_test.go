package shards_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// An uneven backend is slow in some calls on one of its sessions.
type uneven struct {
	*shardstest.Backend
	store *shardstest.Store

	mu      sync.Mutex
	begun   int // calls of Open
	opened  int
	slow    map[call]bool
	owned   map[string]int // the session of each shard
	looker  int            // the session that looked last
	waiting chan struct{}  // has a value when a call begins to be slow
	claimed map[string]int // how many claims of a shard are under way
	twice   bool           // two were at once
	mixed   bool           // a session was told of a version of another
}

// A call is of a session, or an open, of which session is the number.
type call struct {
	session int
	of      string
}

const slowness = 4 * time.Second

func (b *uneven) wait(session int, of string) {
	b.mu.Lock()
	slow := b.slow[call{session, of}]
	if of == "look" {
		b.looker = session
	}
	b.mu.Unlock()
	if slow {
		b.waiting <- struct{}{}
		bubble.Sleep(slowness)
	}
}

func (b *uneven) setSlow(session int, of string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slow[call{session, of}] = true
}

func (b *uneven) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	b.mu.Lock()
	attempt := b.begun
	b.begun++
	b.mu.Unlock()
	b.wait(attempt, "open")
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.Backend.Open(ctx, self, ttl)
	session := b.opened // in the order of Kill, whichever attempt began first
	b.opened++
	return unevenSession{s, b, session}, err
}

type unevenSession struct {
	driver.Session
	backend *uneven
	number  int
}

func (s unevenSession) Announce(ctx context.Context, self driver.Member) error {
	s.backend.wait(s.number, "announce")
	return s.Session.Announce(ctx, self)
}

func (s unevenSession) Look(ctx context.Context, known uint64) (driver.View, error) {
	s.backend.wait(s.number, "look")
	offset := uint64(s.number) << 32 // each session has versions of its own
	if known != 0 {
		s.backend.mu.Lock()
		s.backend.mixed = s.backend.mixed || known>>32 != offset>>32
		s.backend.mu.Unlock()
		known -= offset
	}
	v, err := s.Session.Look(ctx, known)
	v.Version += offset
	return v, err
}

func (s unevenSession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	s.backend.count(names, 1)
	defer s.backend.count(names, -1)
	s.backend.wait(s.number, "claim")
	grants, err := s.Session.Claim(ctx, names)
	s.backend.wait(s.number, "answer to a claim")
	s.backend.mu.Lock()
	defer s.backend.mu.Unlock()
	for _, g := range grants {
		s.backend.owned[g.Name] = s.number
	}
	return grants, err
}

func (s unevenSession) Release(ctx context.Context, names []string) error {
	s.backend.wait(s.number, "release")
	return s.Session.Release(ctx, names)
}

// count counts claims that are under way.
func (b *uneven) count(names []string, more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		b.claimed[name] += more
		b.twice = b.twice || b.claimed[name] > 1
	}
}

// of returns a shard that a session of this number has, or has not.
func (b *uneven) of(session int, has bool, among []shards.Shard) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(among, func(s shards.Shard) bool { return (b.owned[s.Name] == session) == has })
	return among[i].Name
}

type never struct{}

func (never) NextDelay(backoff.Retry) (time.Duration, bool) { return 0, false }

// An unevenNode is a node on an uneven backend.
type unevenNode struct {
	*shards.Node
	backend  *uneven
	changed  chan struct{}
	released chan string
	listSlow atomic.Bool
	end      func()

	mu      sync.Mutex
	names   []string
	worse   []error
	failing map[string]chan struct{}
}

func newUneven(t *testing.T) *unevenNode {
	t.Helper()
	store := shardstest.NewStore()
	u := &unevenNode{
		backend: &uneven{Backend: store.Backend(), store: store, slow: map[call]bool{}, owned: map[string]int{}, claimed: map[string]int{}, waiting: make(chan struct{}, 10)},
		changed: make(chan struct{}), released: make(chan string, 10), failing: map[string]chan struct{}{},
	}
	for i := range 20 {
		u.names = append(u.names, fmt.Sprint(i))
	}
	node, err := shards.New(shards.Config{
		Name: "tenants", Backend: u.backend, List: u.list, ListChanged: u.changed, Restart: never{}, DrainTimeout: time.Second,
		Callbacks: shards.Callbacks{OnError: u.problem, OnReleased: func(s shards.Shard) {
			if u.failed(s.Name) {
				u.released <- s.Name
			}
		}},
	})
	require.NoError(t, err)
	u.Node = node
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx, u.work) }()
	u.end = func() {
		stop()
		assert.NoError(t, <-done)
	}
	return u
}

// problem notes what is worse than a session that was killed.
func (u *unevenNode) problem(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !errors.Is(err, leader.ErrLost) {
		u.worse = append(u.worse, err)
	}
}

func (u *unevenNode) problems() []error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.worse
}

func (u *unevenNode) list(context.Context) ([]string, error) {
	if u.listSlow.Load() {
		u.backend.waiting <- struct{}{}
		bubble.Sleep(slowness)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.names), nil
}

func (u *unevenNode) work(ctx context.Context, s shards.Shard) error {
	fail := make(chan struct{})
	u.mu.Lock()
	u.failing[s.Name] = fail
	u.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil
	case <-fail:
		runtime.Goexit()
		return nil
	}
}

// fail ends the work on a shard, which is given away then.
func (u *unevenNode) fail(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	close(u.failing[name])
}

func (u *unevenNode) failed(name string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-u.failing[name]:
		return true
	default:
		return false
	}
}

// Each call is slow in turn, on one of two sessions, while the work on a shard of the other ends.
func TestACallThatIsSlowDelaysNoReleaseOnAnotherSession(t *testing.T) {
	t.Parallel()
	relist := func(u *unevenNode, change func(names []string) []string) {
		u.mu.Lock()
		u.names = change(u.names)
		u.mu.Unlock()
		u.changed <- struct{}{}
	}
	for of, begin := range map[string]func(u *unevenNode, slow int){
		"claim": func(u *unevenNode, _ int) {
			relist(u, func(names []string) []string { return append(names, "x", "y") })
		},
		"release": func(u *unevenNode, slow int) {
			name := u.backend.of(slow, true, u.Owned())
			relist(u, func(names []string) []string {
				return slices.DeleteFunc(names, func(each string) bool { return each == name })
			})
		},
		"announce": func(u *unevenNode, _ int) { _ = u.SetWeight(50) },
		"look":     func(*unevenNode, int) {},
		"open":     func(u *unevenNode, _ int) { u.backend.Kill(1) },
		"list": func(u *unevenNode, _ int) {
			u.listSlow.Store(true)
			u.changed <- struct{}{}
		},
	} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := newUneven(t)
				pass(10 * time.Second)
				require.Len(t, u.Owned(), 20)
				slow := 1
				switch of {
				case "look":
					slow = u.backend.looker
					u.backend.setSlow(slow, of)
				case "open":
					u.backend.setSlow(2, of) // the next
				default:
					u.backend.setSlow(slow, of)
				}
				begin(u, slow)
				<-u.backend.waiting
				synctest.Wait() // the work on what was claimed meanwhile has begun
				before := time.Now()
				name := u.backend.of(slow, false, u.Owned())
				u.fail(name)
				select {
				case got := <-u.released:
					require.Equal(t, name, got)
				case <-time.After(time.Minute):
					require.Fail(t, "nothing was released")
				}
				assert.Less(t, time.Since(before), slowness/10)
				pass(2 * slowness)
				assert.False(t, u.backend.twice, "no shard is claimed on two sessions at once")
				assert.False(t, u.backend.mixed, "a session gets versions of its own")
				assert.Empty(t, u.problems(), "no work took longer than DrainTimeout")
				u.end()
			})
		})
	}
}

func TestWhatAClaimGotOnASessionThatDiedMeanwhileIsNotOwned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newUneven(t)
		u.backend.setSlow(0, "answer to a claim")
		<-u.backend.waiting
		require.True(t, u.backend.Kill(0))
		pass(20 * time.Second)
		assert.Len(t, u.Owned(), 20)
		assert.Len(t, u.backend.store.Owners(), 20, "it was claimed on another")
		assert.Zero(t, u.Stats().Lost, "it was never owned")
		u.end()
	})
}
