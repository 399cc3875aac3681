package services

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/leader"
)

// A Service runs only on the leader, such as a scheduler.
type Service interface {
	// Start starts the service and returns when it is running. ctx ends with leadership, not with Start:
	// goroutines of the service may keep it, and guarded operations need it. If Start returns an error, it
	// must leave nothing running, because Stop is not called then.
	Start(ctx context.Context) error
	// Stop stops the service and returns when the service has ended completely. The ctx of Start has already ended.
	// The ctx of Stop has not ended, and bounds it.
	Stop(ctx context.Context) error
}

// A Spec describes a service and how to create it.
type Spec struct {
	// Name identifies the service in logs and errors. Required, and unique.
	Name string

	// New creates the service, each time the node becomes leader; a follower never calls it. ctx is the
	// context that Start gets. Required.
	New func(ctx context.Context) (Service, error)

	// StartTimeout bounds New and Start together. 0 = Config.StartTimeout.
	StartTimeout time.Duration

	// StopTimeout bounds Stop. 0 = Config.StopTimeout.
	StopTimeout time.Duration
}

// An Error names a service that failed to start, and the reason.
type Error struct {
	Service string
	Err     error
}

func (e *Error) Error() string { return "leader: service " + e.Service + ": start: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// ErrTimeout is the reason if a service did not start or stop in time.
var (
	ErrTimeout   = errors.New("not done in time")
	errNoService = errors.New("New returned no service")
)

// An instance is a service during one leadership.
type instance struct {
	Spec
	calls   *sync.WaitGroup
	started chan struct{} // closed when Start has returned
	service Service
	err     error // error of New or Start; valid after started is closed
}

// start returns when the service has started, has failed to start, or has used up its time. In the last case
// the call continues, and stop waits for it.
func (p *instance) start(ctx context.Context) error {
	p.calls.Go(func() {
		defer close(p.started)
		p.err = guarded(func() (err error) {
			if p.service, err = p.New(ctx); err != nil {
				return err
			}
			if p.service == nil {
				return errNoService
			}
			return p.service.Start(ctx)
		})
	})
	timer := time.NewTimer(p.StartTimeout)
	defer timer.Stop()
	select {
	case <-p.started:
		return p.err
	case <-timer.C:
		return fmt.Errorf("%w (%v)", ErrTimeout, p.StartTimeout)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop stops the service if it has started, and returns after StopTimeout at the latest. The call then
// continues.
func (p *instance) stop(ctx context.Context) error {
	done := make(chan error, 1)
	p.calls.Go(func() {
		<-p.started
		if p.err != nil {
			done <- nil
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.StopTimeout)
		defer cancel()
		done <- guarded(func() error { return p.service.Stop(ctx) })
	})
	timer := time.NewTimer(p.StopTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("%w (%v)", ErrTimeout, p.StopTimeout)
	}
}

// guarded calls fn, and turns a panic or the end of its goroutine into an error.
func guarded(fn func() error) error {
	err := background.Outlive(fn)
	if _, ok := errors.AsType[*background.PanicError](err); ok {
		return fmt.Errorf("%w: %w", leader.ErrPanic, err)
	}
	return err
}
