package kubernetes

import (
	"context"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/pglatch/pglatch/internal/pause"
)

const (
	// pollFor is how long followers poll before they check again whether they may watch. Rights are often
	// granted a moment after a program was started.
	pollFor = time.Minute
	// pollInterval is the time between two looks if no watch is allowed.
	pollInterval = 2 * time.Second
	// rewatch is the pause before an ended watch is opened again.
	rewatch = 200 * time.Millisecond
)

// A watching is a watch that continues between calls of Wait.
type watching struct {
	watch.Interface
	cancel context.CancelFunc
}

// Wait implements driver.Waiter. It returns nil when the Lease is released, deleted, or has expired. It holds
// nothing. It leaves a watch open, which ends with the next successful TryAcquire, Release or Close. If
// watching is forbidden, it polls about every two seconds. It returns other failures as errors.
func (b *Backend) Wait(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		last := b.lastSeen()
		if b.free(last) {
			return nil
		}
		if b.watch == nil && time.Now().After(b.pollUntil) {
			if err := b.startWatching(ctx, last.lease.ResourceVersion); err != nil {
				return err
			}
			continue
		}
		if err := b.next(ctx, last.left(b.ttl)); err != nil {
			return err
		}
	}
}

// next waits for an event, or for the Lease to expire.
func (b *Backend) next(ctx context.Context, left time.Duration) error {
	if b.watch == nil {
		return b.look(ctx, min(left, pause.Jitter(pollInterval, 0.2)))
	}
	expiry := time.NewTimer(left)
	defer expiry.Stop()
	select {
	case <-ctx.Done():
	case <-expiry.C:
		b.stopWatching() // it reported no renewal: perhaps the watch is dead
	case event, ok := <-b.watch.ResultChan():
		lease, isLease := event.Object.(*coordinationv1.Lease)
		switch {
		case !ok || event.Type == watch.Error: // 410 Gone, for one
			b.stopWatching()
			return b.look(ctx, pause.Jitter(rewatch, 0.2))
		case event.Type == watch.Deleted:
			b.see(nil)
		case isLease && event.Type != watch.Bookmark && !b.lastSeen().outdates(lease):
			b.see(lease)
		}
	}
	return nil
}

// look reads the Lease after a pause.
func (b *Backend) look(ctx context.Context, first time.Duration) error {
	if err := pause.For(ctx, first); err != nil {
		return err
	}
	_, err := b.get(ctx)
	return err
}

// startWatching opens a watch for changes after that version, or records that this is forbidden. ctx bounds
// the opening only.
func (b *Backend) startWatching(ctx context.Context, version string) error {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	opened := context.AfterFunc(ctx, cancel)
	w, err := b.leases.Watch(own, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, b.name).String(),
		ResourceVersion: version,
	})
	switch {
	case err == nil:
		b.watch = &watching{w, cancel}
		if !opened() {
			b.stopWatching()
			return context.Cause(ctx)
		}
		return nil
	case apierrors.IsForbidden(err):
		cancel()
		if !b.warned && b.Logger != nil {
			b.Logger.Warn("watching the Lease is forbidden, polling instead: grant the verb watch",
				slog.String("namespace", b.namespace), slog.String("lease", b.name), slog.Any("error", err))
		}
		b.warned = true
		b.pollUntil = time.Now().Add(pollFor)
		return nil
	}
	cancel()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return b.look(ctx, pause.Jitter(rewatch, 0.2))
	}
	return b.failed("watching", err)
}

// stopWatching ends the watch and waits until nothing of it is running.
func (b *Backend) stopWatching() {
	if b.watch == nil {
		return
	}
	b.watch.cancel()
	b.watch.Stop()
	for range b.watch.ResultChan() {
	}
	b.watch = nil
}
