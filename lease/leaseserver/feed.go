package leaseserver

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/shared"
)

// A feed tells the servers of a store which locks a server other than the active one has changed:
// their waiters and watchers then ask. Its messages are names of locks. A lost message costs a
// PollInterval.
type feed struct {
	messenger lease.Messenger // nil = the store has none
	queue     *queue
	forwarder *forwarder // nil = there are no other servers
	logger    *slog.Logger
	some      chan struct{} // of size one: there is something to send

	mu      sync.Mutex
	changed map[string]struct{} // not sent yet
}

const (
	mostChanged = 10_000 // names that are not sent yet; more are found by polling
	mostAtOnce  = 1_000
)

func newFeed(c *Config, f *forwarder, q *queue) *feed {
	messenger, _ := c.Store.(lease.Messenger)
	return &feed{messenger: messenger, queue: q, forwarder: f, logger: c.Logger, some: make(chan struct{}, 1), changed: make(map[string]struct{})}
}

// run listens and sends until ctx ends.
func (f *feed) run(ctx context.Context) {
	if f.messenger == nil || f.forwarder == nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { f.send(ctx) })
	for failures := 0; ctx.Err() == nil; failures++ {
		err := f.messenger.Listen(ctx, func() { failures = 0 }, f.receive)
		if failures == 0 && ctx.Err() == nil {
			f.logger.LogAttrs(ctx, slog.LevelInfo, "changes_not_heard", slog.Any("error", err))
		}
		_ = pause.For(ctx, pause.Backoff(failures, aliveEvery, 5*aliveEvery))
	}
}

// tell announces a change, unless this server is active: then nobody else has waiters.
func (f *feed) tell(name string) {
	if f == nil || f.messenger == nil || f.forwarder.isActive() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.changed) >= mostChanged {
		return
	}
	f.changed[name] = struct{}{}
	select {
	case f.some <- struct{}{}:
	default:
	}
}

// send sends names as they come. A name that could not be sent is sent again.
func (f *feed) send(ctx context.Context) {
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-f.some:
		}
		for names := f.next(); len(names) > 0; names = f.next() {
			bounded, cancel := f.queue.meter.bound(ctx)
			err := f.messenger.Send(bounded, names)
			cancel()
			if err == nil {
				failures = 0
				continue
			}
			for _, name := range names {
				f.tell(name)
			}
			failures++
			if pause.For(ctx, pause.Backoff(failures, tryEvery, 5*aliveEvery)) != nil {
				return
			}
		}
	}
}

func (f *feed) next() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := slices.Collect(maps.Keys(f.changed))
	names = names[:min(len(names), mostAtOnce)]
	for _, name := range names {
		delete(f.changed, name)
	}
	return names
}

// receive handles a message. Anybody may send one: at worst, a waiter asks in vain.
func (f *feed) receive(name string) {
	f.queue.watches.change(name)
	f.queue.wake(name)
	f.queue.slotReleased(name)
}

// slotReleased wakes the waiter for a slot of a lock, if name is that of a slot.
func (q *queue) slotReleased(name string) {
	if lock, slot, ok := shared.ParseName(name); ok && slot > 0 {
		q.wake(slotLine(lock))
	}
}
