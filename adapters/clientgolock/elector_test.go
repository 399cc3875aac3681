package clientgolock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// five enters five candidates, whose clocks are wrong by up to an hour.
func five(t *testing.T, store lease.Store, w *watcher, release bool) map[string]*candidate {
	t.Helper()
	all := map[string]*candidate{}
	for i := range 5 {
		by := time.Duration(i-2) * 30 * time.Minute
		c := enter(t, store, w, numbered(i), usual, release, func(l resourcelock.Interface) resourcelock.Interface { return skewed{l, by} })
		all[c.name] = c
	}
	return all
}

func TestOneOfFiveLeadsWhoeverDiesLeavesOrIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, w := leasetest.NewStore(), newWatcher()
		all := five(t, store, w, true)
		first := w.await(t)
		token := all[first].lock.Token()

		began := time.Now()
		all[first].leave()
		second := w.await(t, first)
		assert.Less(t, time.Since(began), 2*usual.retry, "a release hands over at the next try")
		assert.Greater(t, all[second].lock.Token(), token)
		assert.Zero(t, all[first].lock.Token())

		began = time.Now()
		all[second].line.cut.Store(true)
		third := w.await(t, second)
		assert.Less(t, time.Since(began), usual.lease+2*usual.retry, "the lease ends by the clock of the store")

		all[second].line.cut.Store(false)
		bubble.Sleep(time.Hour)
		assert.Equal(t, []string{third}, w.leaders())

		record, err := store.Get(t.Context(), "operator")
		require.NoError(t, err)
		assert.Equal(t, third, record.Holder)
		for _, c := range all {
			c.leave()
		}
		assert.Equal(t, 1, w.most)
		record, err = store.Get(t.Context(), "operator")
		require.NoError(t, err)
		assert.Equal(t, lease.Free, record.State)
		assert.Contains(t, record.Metadata["leaderElectionRecord"], `"leaderTransitions":2`)
	})
}

func TestNobodyLeadsWhileTheStoreIsOutOfReachAndSomebodyAfterwards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, w := leasetest.NewStore(), newWatcher()
		all := five(t, store, w, true)
		w.await(t)
		for _, c := range all {
			c.line.cut.Store(true)
		}
		bubble.Sleep(usual.renew + 2*usual.retry)
		assert.Empty(t, w.leaders(), "before the lease ends")
		bubble.Sleep(time.Hour)
		assert.Empty(t, w.leaders())
		for _, c := range all {
			c.line.cut.Store(false)
		}
		w.await(t)
		assert.Equal(t, 1, w.most)
	})
}

// A leader whose lease ended takes none again before it has stopped, although the lease is
// free: another may have led meanwhile.
func TestALeadershipIsOneLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, w := leasetest.NewStore(), newWatcher()
		c := enter(t, store, w, "one", usual, true, nil)
		w.await(t)
		synctest.Wait()
		record, err := store.Get(t.Context(), "operator")
		require.NoError(t, err)
		require.NoError(t, store.Release(t.Context(), record.Claim)) // as if the process had been stopped for long

		bubble.Sleep(usual.renew + 3*usual.retry)
		synctest.Wait()
		w.mu.Lock()
		assert.Equal(t, []string{"one", "one"}, w.order, "it stopped, and leads again")
		w.mu.Unlock()
		assert.Greater(t, c.lock.Token(), record.Token)
	})
}

func TestTwoCandidatesOfOneIdentityExcludeEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, w := leasetest.NewStore(), newWatcher()
		enter(t, store, w, "same", usual, true, nil)
		w.await(t)
		other := newWatcher()
		enter(t, store, other, "same", usual, true, nil)
		bubble.Sleep(time.Hour)
		assert.Empty(t, other.leaders())
		assert.Equal(t, []string{"same"}, w.order)
	})
}

func TestALeaseWhoseAnswerWasLostIsTheCandidatesAllTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, w := leasetest.NewStore(), newWatcher()
		enter(t, store, w, "one", usual, true, nil).leave() // so that the lease is taken over, and not made
		deaf := &line{Store: store}
		deaf.deaf.Store(true)
		began := time.Now()
		c := enter(t, deaf, w, "two", usual, true, nil)
		bubble.Sleep(usual.retry / 2) // the first answer is lost
		synctest.Wait()
		record, err := store.Get(t.Context(), "operator")
		require.NoError(t, err)
		require.Equal(t, "two", record.Holder)
		deaf.deaf.Store(false)
		w.await(t, "one")
		assert.Less(t, time.Since(began), 3*usual.retry, "long before the lease ends")
		assert.Equal(t, record.Token, c.lock.Token())
	})
}

// atOnce makes the first Get of two candidates end together, before either goes on.
type atOnce struct {
	resourcelock.Interface
	both *sync.WaitGroup
	once *sync.Once
}

func (a atOnce) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := a.Interface.Get(ctx)
	a.once.Do(func() {
		a.both.Done()
		a.both.Wait()
	})
	return r, raw, err
}

// race has two candidates see the same free record, and returns how many led at one time.
func race(t *testing.T, lock func(name string) resourcelock.Interface) int {
	t.Helper()
	var both sync.WaitGroup
	both.Add(2)
	w := newWatcher()
	ctx, cancel := context.WithCancel(t.Context())
	var electors sync.WaitGroup
	for i := range 2 {
		electors.Go(func() {
			run(ctx, w, numbered(i), atOnce{lock(numbered(i)), &both, new(sync.Once)}, usual, true)
		})
	}
	bubble.Sleep(time.Minute)
	synctest.Wait()
	cancel()
	electors.Wait()
	return w.most
}

func TestOfTwoThatSeeTheSameFreeLeaseOneLeads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		assert.Equal(t, 1, race(t, func(name string) resourcelock.Interface { return newLock(t, store, name) }))
		assert.Equal(t, 1, race(t, func(name string) resourcelock.Interface { return newLock(t, store, name) }), "with a record that was released")
	})
}

// The control: client-go relies on Create and Update to compare.
func TestOfTwoThatSeeTheSameFreeLeaseBothLeadIfAnUpdateDoesNotCompare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &careless{}
		assert.Equal(t, 2, race(t, func(name string) resourcelock.Interface { return carelessOf{shared, name} }))
	})
}

// A careless record is that of the last writer.
type careless struct {
	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord
}

type carelessOf struct {
	*careless
	name string
}

func (c carelessOf) Identity() string   { return c.name }
func (c carelessOf) Describe() string   { return "careless" }
func (c carelessOf) RecordEvent(string) {}

func (c carelessOf) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.record == nil {
		return nil, nil, apierrors.NewNotFound(resource, "careless")
	}
	r := *c.record
	return &r, []byte(r.RenewTime.String() + r.HolderIdentity), nil
}

func (c carelessOf) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return c.Update(ctx, r)
}

func (c carelessOf) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record = &r
	return nil
}
