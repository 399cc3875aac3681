package clientgolock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/pglatch/pglatch/adapters/clientgolock"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	pgtest.Main(m)
}

var errUnreachable = errors.New("the store cannot be reached")

// A line is the way to a store, which can be cut.
type line struct {
	leased.Store
	cut  atomic.Bool
	deaf atomic.Bool // acquisitions arrive, their answers do not
	busy atomic.Bool // acquisitions are refused
}

func (l *line) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	if l.cut.Load() {
		return lease.Lease{}, errUnreachable
	}
	if l.busy.Load() {
		return lease.Lease{}, &lease.BusyError{Cause: errUnreachable}
	}
	got, err := l.Store.Acquire(ctx, r)
	if l.deaf.Load() {
		return lease.Lease{}, errUnreachable
	}
	return got, err
}

func (l *line) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	if l.cut.Load() {
		return lease.Lease{}, errUnreachable
	}
	return l.Store.Renew(ctx, r)
}

func (l *line) Release(ctx context.Context, c lease.Claim) error {
	if l.cut.Load() {
		return errUnreachable
	}
	return l.Store.Release(ctx, c)
}

func (l *line) Get(ctx context.Context, name string) (lease.Record, error) {
	if l.cut.Load() {
		return lease.Record{}, errUnreachable
	}
	return l.Store.Get(ctx, name)
}

// A watcher sees who leads, and the greatest number of leaders at a time whose contexts
// have not ended: with ReleaseOnCancel client-go does not wait for their work.
type watcher struct {
	mu     sync.Mutex
	now    map[string]func() error // the Err of its context
	most   int
	order  []string
	change chan struct{}
}

func newWatcher() *watcher {
	return &watcher{now: map[string]func() error{}, change: make(chan struct{}, 1000)}
}

// lead is the work of a leader: it ends with its context.
func (w *watcher) lead(ctx context.Context, who string) {
	w.mu.Lock()
	w.now[who] = ctx.Err
	live := 0
	for _, ended := range w.now {
		if ended() == nil {
			live++
		}
	}
	w.most = max(w.most, live)
	w.order = append(w.order, who)
	w.mu.Unlock()
	w.change <- struct{}{}
	<-ctx.Done()
	w.mu.Lock()
	delete(w.now, who)
	w.mu.Unlock()
	w.change <- struct{}{}
}

func (w *watcher) leaders() (now []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for who := range w.now {
		now = append(now, who)
	}
	return now
}

// await waits until one leads that is not in besides, and returns it.
func (w *watcher) await(t *testing.T, besides ...string) string {
	t.Helper()
	for {
		for _, who := range w.leaders() {
			if !slices.Contains(besides, who) {
				return who
			}
		}
		select {
		case <-w.change:
		case <-time.After(10 * time.Minute):
			require.FailNow(t, "nobody leads")
		}
	}
}

// A candidate runs client-go's elector, again after each leadership.
type candidate struct {
	name string
	lock *clientgolock.Lock
	line *line
	stop context.CancelFunc
	done chan struct{}
}

// times are those of an elector; client-go's defaults.
type times struct{ lease, renew, retry time.Duration }

var usual = times{15 * time.Second, 10 * time.Second, 2 * time.Second}

// enter starts a candidate; face is what its elector gets in place of its lock, if not nil.
func enter(t *testing.T, store leased.Store, w *watcher, name string, every times, release bool, face func(resourcelock.Interface) resourcelock.Interface) *candidate {
	t.Helper()
	c := &candidate{name: name, line: &line{Store: store}, done: make(chan struct{})}
	lock, err := clientgolock.New(c.line, clientgolock.Config{Name: "operator", Identity: name})
	require.NoError(t, err)
	c.lock = lock
	var with resourcelock.Interface = lock
	if face != nil {
		with = face(lock)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	c.stop = cancel
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			run(ctx, w, name, with, every, release)
		}
	}()
	t.Cleanup(c.leave)
	return c
}

// leave stops the candidate, and waits for it.
func (c *candidate) leave() {
	c.stop()
	<-c.done
}

// run runs one election, and waits for the work in it.
func run(ctx context.Context, w *watcher, name string, lock resourcelock.Interface, every times, release bool) {
	var work sync.WaitGroup
	work.Add(1)
	var once sync.Once
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: every.lease, RenewDeadline: every.renew, RetryPeriod: every.retry, ReleaseOnCancel: release, Name: "operator",
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				work.Add(1)
				defer work.Done()
				w.lead(ctx, name)
			},
			OnStoppedLeading: func() { once.Do(work.Done) },
		},
	})
	if err != nil {
		panic(err)
	}
	elector.Run(ctx)
	work.Wait()
}

// A skewed lock is that of a candidate whose clock is wrong.
type skewed struct {
	resourcelock.Interface
	by time.Duration
}

func (s skewed) move(r resourcelock.LeaderElectionRecord, by time.Duration) resourcelock.LeaderElectionRecord {
	r.AcquireTime, r.RenewTime = metav1.NewTime(r.AcquireTime.Add(by)), metav1.NewTime(r.RenewTime.Add(by))
	return r
}

func (s skewed) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return s.Interface.Create(ctx, s.move(r, s.by))
}

func (s skewed) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return s.Interface.Update(ctx, s.move(r, s.by))
}

func (s skewed) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := s.Interface.Get(ctx)
	if err == nil {
		moved := s.move(*r, s.by)
		r = &moved
	}
	return r, raw, err
}

func numbered(i int) string { return fmt.Sprintf("candidate-%d", i) }
