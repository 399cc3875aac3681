package shards_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// Sessions die, networks are cut and slow, stores fail, views lack members, nodes come, go and
// drain. Work that overlaps with that of another node for longer than the moment in which a
// session was killed fails the test, and so does a term that does not rise. There are more rounds in
// the long form.
func TestWhateverHappensOneNodeWorksOnAShardAndAllAreOwnedEvenlyInTheEnd(t *testing.T) {
	t.Parallel()
	for seed := range soak.Size[uint64](t, 8, 500) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { calamity(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func calamity(t *testing.T, random *rand.Rand) {
	t.Helper()
	const n = 24
	g := newGroup(t)
	config := shards.Config{Count: n}
	var nodes []*member
	born := 0
	join := func() {
		nodes = append(nodes, g.join(fmt.Sprint("node-", born), config))
		born++
	}
	join()
	join()
	join()
	draining := map[string]bool{}
	cut := map[*member]bool{}
	for range 20 + random.IntN(20) {
		pass(time.Duration(random.IntN(23_000)) * time.Millisecond)
		m := nodes[random.IntN(len(nodes))]
		switch random.IntN(12) {
		case 0, 1:
			if !cut[m] { // who is cut off and killed does not hear of it, and others do: there only terms help
				m.backend.Kill(random.IntN(2))
			}
		case 2, 3:
			cut[m] = true
			m.backend.Cut()
		case 4:
			cut[m] = false
			m.backend.Heal()
		case 5:
			m.backend.SetDelay(time.Duration(random.IntN(4000)) * time.Millisecond)
		case 6:
			m.backend.SetUnavailable(errors.New("unavailable"))
		case 7:
			m.backend.SetUnavailable(nil)
		case 8:
			m.backend.Hide(nodes[0].Identity(), nodes[len(nodes)-1].Identity())
		case 9:
			draining[m.Identity()] = true
			_ = g.store.Backend().Drain(t.Context(), m.Identity(), true)
		case 10:
			if len(nodes) < 6 {
				join()
			}
		case 11:
			if len(nodes) > 2 {
				m.stop()
				nodes = remove(nodes, m)
				defer func() { <-m.done }()
			}
		}
	}
	for _, m := range nodes {
		m.backend.Heal()
		m.backend.SetDelay(0)
		m.backend.SetUnavailable(nil)
		m.backend.Hide()
	}
	for identity := range draining {
		require.NoError(t, g.store.Backend().Drain(t.Context(), identity, false))
	}
	pass(5 * time.Minute)
	loads := g.loads()
	assert.Len(t, g.works(), n, "all are owned")
	for _, m := range nodes {
		assert.GreaterOrEqual(t, loads[m.Identity()], n/len(nodes), loads)
		assert.LessOrEqual(t, loads[m.Identity()], (n+len(nodes)-1)/len(nodes), loads)
		stats := m.Stats()
		assert.Equal(t, int64(stats.Owned), stats.Acquired-stats.Released-stats.Lost, "each Acquired has one end")
		assert.Equal(t, stats.Owned, len(m.Owned()))
	}
	assert.Equal(t, g.works(), g.store.Owners())
	for _, m := range nodes {
		m.end(t)
	}
	assert.Empty(t, g.works())
}

func remove(nodes []*member, m *member) (rest []*member) {
	for _, each := range nodes {
		if each != m {
			rest = append(rest, each)
		}
	}
	return rest
}

func TestAShardThatWasTakenAwayAloneIsLostAndItsSessionGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a := g.join("a", shards.Config{Callbacks: shards.Callbacks{OnLost: func(s shards.Shard, err error) {
			assert.Equal(t, "7", s.Name)
			assert.ErrorIs(t, err, leader.ErrLost)
		}}})
		pass(20 * time.Second)
		g.store.Steal("7")
		pass(20 * time.Second)
		assert.Equal(t, int64(1), a.Stats().Lost)
		assert.Equal(t, leader.Term{N: 2}, g.terms["7"], "it is claimed again")
		assert.Equal(t, leader.Term{N: 1}, g.terms["8"])
		a.end(t)
	})
}

// The machine was suspended: no timer has run, and Err says it all the same.
func TestAContextLooksAtTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		look, found := make(chan struct{}), make(chan error, 1)
		a := g.joinWith("a", shards.Config{Count: 1}, func(ctx context.Context, _ shards.Shard) error {
			assert.NoError(t, ctx.Err())
			if _, first := <-look; first {
				found <- ctx.Err()
				assert.ErrorIs(t, context.Cause(ctx), leader.ErrLost)
			}
			return nil
		})
		pass(20 * time.Second)
		assert.Len(t, a.Owned(), 1)
		a.Distrust()
		assert.Empty(t, a.Owned())
		look <- struct{}{}
		require.ErrorIs(t, <-found, context.Canceled)
		synctest.Wait()
		a.stop()
		close(look)
		<-a.done
	})
}

// The machine was suspended while a renewal was under way, whose answer has come.
func TestARenewalThatComesTooLateProlongsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a := g.join("a", shards.Config{Count: 1})
		pass(20 * time.Second)
		a.backend.SetDelay(4900 * time.Millisecond) // one is under way for nearly all of the time
		pass(20 * time.Second)
		assert.Zero(t, a.Stats().Lost)
		a.Distrust()
		pass(5 * time.Second) // until its answer
		assert.Equal(t, int64(1), a.Stats().Lost)
		a.backend.SetDelay(0)
		pass(20 * time.Second)
		assert.Len(t, a.Owned(), 1, "it was claimed again")
		a.end(t)
	})
}

func TestAShardIsNotClaimedAgainBeforeItsWorkHasReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		calls, release := make(chan struct{}, 2), make(chan struct{})
		a := g.joinWith("a", shards.Config{Count: 1}, func(context.Context, shards.Shard) error {
			calls <- struct{}{}
			<-release // whatever its context says
			return nil
		})
		pass(20 * time.Second)
		a.backend.Kill(0)
		a.backend.Kill(0)
		pass(settled)
		assert.Empty(t, g.store.Owners())
		assert.Len(t, calls, 1)
		close(release)
		pass(20 * time.Second)
		assert.Len(t, g.store.Owners(), 1)
		assert.Len(t, calls, 2)
		a.end(t)
	})
}

// forgetful is a backend whose first answers to claims get lost on the way.
type forgetful struct {
	*shardstest.Backend
	lost *atomic.Int64
}

type forgetfulSession struct {
	driver.Session
	lost *atomic.Int64
}

func (b forgetful) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, self, ttl)
	return forgetfulSession{s, b.lost}, err
}

func (s forgetfulSession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	grants, err := s.Session.Claim(ctx, names)
	if s.lost.Add(-1) >= 0 {
		return nil, errors.New("no answer")
	}
	return grants, err
}

func TestAClaimWhoseAnswerWasLostIsSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := shardstest.NewStore()
		var lost atomic.Int64
		lost.Store(3)
		n, err := shards.New(shards.Config{Name: "tenants", Backend: forgetful{store.Backend(), &lost}, Count: 10})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- n.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
		}()
		pass(time.Minute)
		assert.Len(t, n.Owned(), 10)
		stop()
		require.NoError(t, <-done)
		assert.Empty(t, store.Owners())
	})
}

// The first renewals get nowhere, and the lease counts from when the session was asked for.
func TestASlowOpenLeavesNoTimeAfterTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := &uneven{Backend: shardstest.NewStore().Backend(), slow: map[call]bool{}, owned: map[string]int{}, claimed: map[string]int{}, waiting: make(chan struct{}, 2)}
		u.setSlow(0, "open")
		u.setSlow(1, "open")
		node, err := shards.New(shards.Config{
			Name: "tenants", Backend: u, Count: 1,
			LeaseDuration: 20 * time.Second, RenewInterval: 5 * time.Second, RenewTimeout: 10 * time.Second, LookInterval: 10 * time.Millisecond,
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		begun, ended, done := make(chan struct{}), make(chan time.Time, 1), make(chan error, 1)
		asked := time.Now()
		go func() {
			done <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error {
				close(begun)
				<-ctx.Done()
				ended <- time.Now()
				return nil
			})
		}()
		<-begun
		u.Cut()
		assert.LessOrEqual(t, (<-ended).Sub(asked), 20*time.Second-2*time.Second-2*time.Second, "LossDrain and margin before the lease")
		stop()
		require.NoError(t, <-done)
	})
}

// Renewals fail, and the server could hear that the session is closed: it must not before the work has had its LossDrain.
func TestASessionThatCannotBeRenewedIsKeptOpenWhileWorkEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		a := g.joinWith("a", shards.Config{}, func(ctx context.Context, s shards.Shard) error {
			g.begin("a", s)
			<-ctx.Done()
			bubble.Sleep(time.Second) // less than LossDrain
			g.finish(s)               // it fails if another has begun
			return nil
		})
		b := g.join("b", shards.Config{})
		pass(20 * time.Second)
		a.backend.SetUnavailable(errors.New("no route to host"))
		pass(settled)
		assert.Equal(t, map[string]int{"b": 30}, g.loads())
		a.end(t)
		b.end(t)
	})
}

// A narrow backend gives up claims of more than so many names.
type narrow struct {
	*shardstest.Backend
	most    atomic.Int64
	slow    atomic.Int64 // claims that it gave up
	refused atomic.Bool  // the node has announced that it can claim nothing
}

func (b *narrow) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, self, ttl)
	return narrowSession{s, b}, err
}

type narrowSession struct {
	driver.Session
	backend *narrow
}

func (s narrowSession) Announce(ctx context.Context, self driver.Member) error {
	if self.Refuses != "" {
		s.backend.refused.Store(true)
	}
	return s.Session.Announce(ctx, self)
}

func (s narrowSession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	if int64(len(names)) > s.backend.most.Load() {
		s.backend.slow.Add(1)
		return nil, driver.ErrSlow
	}
	return s.Session.Claim(ctx, names)
}

func TestANodeClaimsFewerShardsAtOnceWhereClaimsAreSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &narrow{Backend: shardstest.NewStore().Backend()}
		b.most.Store(6)
		node, err := shards.New(shards.Config{Name: "tenants", Backend: b, Count: 200})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
		}()
		pass(2 * time.Minute)
		assert.Len(t, node.Owned(), 200)
		assert.NotZero(t, b.slow.Load(), "the control: it claimed more at once")
		assert.False(t, b.refused.Load(), "it refuses nothing")
		assert.Zero(t, node.Stats().Lost)

		b.most.Store(0)
		for b.Kill(0) { // its shards are lost, and cannot be claimed again
		}
		pass(2 * time.Minute)
		assert.Less(t, len(node.Owned()), 200)
		assert.True(t, b.refused.Load(), "what it cannot claim one by one it refuses")
		b.most.Store(1000)
		pass(2 * time.Minute)
		assert.Len(t, node.Owned(), 200)
		stop()
		require.NoError(t, <-done)
	})
}

// A busy backend opens a session only for those who wait for it.
type busy struct {
	*shardstest.Backend
	takes    time.Duration
	attempts atomic.Int64
}

func (b *busy) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	b.attempts.Add(1)
	s, err := b.Backend.Open(ctx, self, ttl) // the server's lease begins with the call
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(b.takes):
		return s, nil
	case <-ctx.Done():
		_ = s.Close()
		return nil, context.Cause(ctx)
	}
}

// With a fixed bound of RenewTimeout, the node would never own a shard.
func TestANodeWaitsLongerForASessionWhereTheServerIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &busy{Backend: shardstest.NewStore().Backend(), takes: 14 * time.Second} // of 15 s: only a renewal makes the session last
		node, err := shards.New(shards.Config{Name: "tenants", Backend: b, Count: 20})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error {
				<-ctx.Done()
				return nil
			})
		}()
		pass(5 * time.Minute)
		assert.Len(t, node.Owned(), 20)
		assert.Zero(t, node.Stats().Lost)
		assert.LessOrEqual(t, b.attempts.Load(), int64(6), "two sessions, three attempts each")
		stop()
		require.NoError(t, <-done)
	})
}
