//go:build linux

package kubernetes

import (
	"context"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/leader"
)

// A stranger is one elector of client-go at work, until it loses or resigns.
type stranger struct {
	*electiontest.Child
	once   sync.Once
	quit   chan struct{} // closed when it resigns
	worked chan struct{} // closed when its work has ended
}

func (s *stranger) resign() { s.once.Do(func() { close(s.quit) }) }

func (s *stranger) resigned() bool {
	select {
	case <-s.quit:
		return true
	default:
		return false
	}
}

func (s *stranger) stand(ctx context.Context, client clientset.Interface) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lock := &observedLock{Child: s.Child, Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: s.Settings["namespace"], Name: s.Settings["lease"]}, Client: client.CoordinationV1(),
		// Another elector of the same identity would go on with the term of this one.
		LockConfig: resourcelock.ResourceLockConfig{Identity: s.Identity() + "_" + string(uuid.NewUUID())},
	}}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: theirLease, RenewDeadline: theirRenewDeadline, RetryPeriod: theirRetry, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				defer close(s.worked)
				s.work(leading, leader.Term{N: uint64(lock.term.Load())})
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	var ending sync.WaitGroup
	ending.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-s.quit:
		}
		if lock.term.Load() != 0 {
			<-s.worked
		}
		cancel()
	})
	elector.Run(ctx)
	if lock.term.Load() != 0 {
		<-s.worked
		if s.resigned() {
			s.Say("released")
		} else {
			s.Say("lost")
		}
	}
	cancel()
	ending.Wait()
	return nil
}

// work acts until it leads no more, or it resigns.
func (s *stranger) work(leading context.Context, term leader.Term) {
	ctx, cancel := context.WithCancel(leading)
	var ending sync.WaitGroup
	ending.Go(func() {
		select {
		case <-s.quit:
			cancel()
		case <-ctx.Done():
		}
	})
	s.Say("acquired", term)
	s.Lead(ctx, term)
	cancel()
	ending.Wait()
}

// An observedLock notes the term of its elector, and reports when somebody else leads.
type observedLock struct {
	*electiontest.Child
	resourcelock.Interface
	term atomic.Int64
}

func (l *observedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != "" && record.HolderIdentity != l.Interface.Identity() {
		l.Say("follows")
	}
	return record, raw, err
}

func (l *observedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, record)
	if err == nil && record.HolderIdentity == l.Interface.Identity() {
		l.term.Store(int64(record.LeaderTransitions))
	}
	return err
}

func (l *observedLock) Identity() string { return l.Interface.Identity() }
