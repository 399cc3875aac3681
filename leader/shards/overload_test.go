package shards_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// A queue is a server that does one thing at a time, also for callers that have given up.
type queue struct {
	mu     sync.Mutex
	until  time.Time // when it has done everything
	opened int       // attempts to open a session
}

// The times that things take on a queue. Seven nodes that have their sessions use a third of its time. If they open them again and again, that
// alone takes more than all of it.
const (
	costOpen  = 100 * time.Millisecond
	costLook  = 6 * time.Millisecond
	costShard = 2 * time.Millisecond // of a claim
	costWork  = 3 * time.Millisecond // that the work on a shard begins with
	costOther = 2 * time.Millisecond
)

// add adds work, and returns when it is done.
func (q *queue) add(cost time.Duration) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); q.until.Before(now) {
		q.until = now
	}
	q.until = q.until.Add(cost)
	return time.Until(q.until)
}

// opens returns how many attempts to open a session began.
func (q *queue) opens() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.opened
}

// queued runs do when its turn comes, and waits for it until ctx ends. Nobody gets an answer that comes later: unused does.
func queued[T any](ctx context.Context, q *queue, cost time.Duration, do func(context.Context) (T, error), unused func(T)) (T, error) {
	answers, errs := make(chan T, 1), make(chan error, 1)
	wait := q.add(cost)
	go func() {
		bubble.Sleep(wait)
		answer, err := do(context.WithoutCancel(ctx))
		switch {
		case err != nil:
			errs <- err
		case ctx.Err() != nil:
			unused(answer)
		default:
			answers <- answer
		}
	}()
	var none T
	select {
	case answer := <-answers:
		return answer, nil
	case err := <-errs:
		return none, err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// A crowded backend is one of many on a queue.
type crowded struct {
	*shardstest.Backend
	queue *queue
}

func (b crowded) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	b.queue.mu.Lock()
	b.queue.opened++
	b.queue.mu.Unlock()
	s, err := queued(ctx, b.queue, costOpen,
		func(ctx context.Context) (driver.Session, error) { return b.Backend.Open(ctx, self, ttl) },
		func(s driver.Session) { _ = s.Close() })
	return crowdedSession{s, b.queue, make(chan struct{}, 1)}, err
}

// A crowdedSession has one statement at a time, like a connection.
type crowdedSession struct {
	driver.Session
	queue *queue
	turn  chan struct{}
}

func inTurn[T any](ctx context.Context, s crowdedSession, cost time.Duration, do func(context.Context) (T, error)) (T, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
	return queued(ctx, s.queue, cost, func(ctx context.Context) (T, error) {
		defer func() { <-s.turn }()
		return do(ctx)
	}, func(T) {})
}

func (s crowdedSession) Renew(ctx context.Context, ttl time.Duration) ([]string, error) {
	return inTurn(ctx, s, costOther, func(ctx context.Context) ([]string, error) { return s.Session.Renew(ctx, ttl) })
}

func (s crowdedSession) Look(ctx context.Context, known uint64) (driver.View, error) {
	return inTurn(ctx, s, costLook, func(ctx context.Context) (driver.View, error) { return s.Session.Look(ctx, known) })
}

func (s crowdedSession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	cost := costOther + time.Duration(len(names))*costShard
	return inTurn(ctx, s, cost, func(ctx context.Context) ([]driver.Grant, error) { return s.Session.Claim(ctx, names) })
}

func (s crowdedSession) Announce(ctx context.Context, self driver.Member) error {
	_, err := inTurn(ctx, s, costOther, func(ctx context.Context) (any, error) { return nil, s.Session.Announce(ctx, self) })
	return err
}

func (s crowdedSession) Release(ctx context.Context, names []string) error {
	_, err := inTurn(ctx, s, costOther, func(ctx context.Context) (any, error) { return nil, s.Session.Release(ctx, names) })
	return err
}

// A fleet is seven nodes on one queue.
type fleet struct {
	*queue
	nodes []*shards.Node
	stop  func()
}

func newFleet(t *testing.T, change func(*shards.Node)) *fleet {
	t.Helper()
	f := &fleet{queue: &queue{}}
	store := shardstest.NewStore()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	f.stop = func() {
		cancel()
		running.Wait()
		pass(f.add(0)) // until everything is done
	}
	for i := range 7 {
		node, err := shards.New(shards.Config{
			Name: "tenants", Backend: crowded{store.Backend(), f.queue}, Identity: fmt.Sprint(i), Count: 60, LeaseDuration: time.Second, MovesPerSecond: 1000,
		})
		require.NoError(t, err)
		change(node)
		f.nodes = append(f.nodes, node)
		running.Go(func() {
			assert.NoError(t, node.Run(ctx, func(ctx context.Context, _ shards.Shard) error {
				f.add(costWork)
				<-ctx.Done()
				return nil
			}))
		})
	}
	return f
}

// sum returns the sum over the nodes.
func (f *fleet) sum() (s shards.Stats) {
	for _, node := range f.nodes {
		stats := node.Stats()
		s.Sessions += stats.Sessions
		s.Owned += stats.Owned
		s.Acquired += stats.Acquired
	}
	return s
}

// settles reports whether no session was opened for half a minute, in the time given.
func (f *fleet) settles(within time.Duration) bool {
	for begun := time.Now(); time.Since(begun) < within; {
		before := f.opens()
		if pass(30 * time.Second); f.opens() == before {
			return true
		}
	}
	return false
}

// All sessions open at the same time, which takes longer than a lease, and all are lost. Later the server stands still for five seconds.
// Both times each session that opens makes the others slower.
func TestAFleetOnASlowServerSettles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, func(*shards.Node) {})
		for range 2 {
			require.True(t, f.settles(20*time.Minute)) // in less than one
			assert.Equal(t, 14, f.sum().Sessions)
			assert.Equal(t, 60, f.sum().Owned)
			f.add(5 * time.Second)
		}
		f.stop()
	})
}

// The control: without pauses it never does.
func TestAFleetThatComesBackAtOnceNeverSettlesOnASlowServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, (*shards.Node).Hurry)
		assert.False(t, f.settles(3*time.Minute))
		assert.Zero(t, f.sum().Owned)
		f.stop()
	})
}

// Somebody ends the sessions of a node. The server is not slow, and so there is no advice.
func TestANodeWhoseSessionsAreEndedWaitsLongerEachTimeUntilOneHasLasted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		var advice error
		a := g.join("a", shards.Config{LeaseDuration: 10 * time.Second, Callbacks: shards.Callbacks{OnError: func(err error) {
			if !errors.Is(err, leader.ErrLost) {
				advice = errors.Join(advice, err)
			}
		}}})
		// again ends both sessions, and returns how long the node does not have both.
		again := func() time.Duration {
			a.backend.Kill(0)
			a.backend.Kill(0)
			ended := time.Now()
			for synctest.Wait(); a.Stats().Sessions < 2; pass(100 * time.Millisecond) {
			}
			return time.Since(ended)
		}
		for range 2 {
			pass(time.Minute)
			assert.Zero(t, again(), "a session that had lasted")
			assert.Zero(t, again(), "the first one that ended early")
			for _, longest := range []float64{2, 4, 8} { // both wait for at least half of it
				assert.InDelta(t, longest*0.75, again().Seconds(), longest*0.4)
			}
			pass(time.Minute)
			assert.Len(t, a.Owned(), 30)
		}
		require.NoError(t, advice)
		a.end(t)
	})
}

// Sessions open, because attempts to open them get more and more time. Their renewals take too long.
func TestANodeOnASlowServerSaysHowLongAnAnswerTook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		advised := make(chan string, 1000)
		a := g.join("a", shards.Config{LeaseDuration: 10 * time.Second, Callbacks: shards.Callbacks{OnError: func(err error) {
			if strings.Contains(err.Error(), "raise LeaseDuration") {
				advised <- err.Error()
			}
		}}})
		a.backend.SetDelay(4 * time.Second)
		assert.Equal(t, "shards: tenants: sessions keep ending early: the store took 3.333s to answer, and LeaseDuration is 10s: raise LeaseDuration, or give the store less to do", <-advised)
		a.backend.SetDelay(0)
		pass(settled)
		assert.Len(t, a.Owned(), 30)
		a.end(t)
	})
}
