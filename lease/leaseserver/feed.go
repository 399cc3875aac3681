package leaseserver

import (
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/shared"
)

// A feed carries two kinds of messages between the servers of a store that have queues of their own:
//
//   - changed: a server other than the active one has changed a lock. The others' waiters and
//     watchers then ask.
//   - wanted: a request waits for a lock that another server's clients pass to each other. That
//     server then lets the others have it once: see queue.release.
//
// A lost message costs a PollInterval. Anybody who can send messages can make a waiter query the
// store in vain, or delay a hand-over by standBackTime.
type feed struct {
	messenger lease.Messenger // nil = the store has none
	queue     *queue
	forwarder *forwarder // nil = there is no election
	logger    *slog.Logger
	id        string        // of this server, in its messages
	some      chan struct{} // of size one: there is something to send
	hears     atomic.Bool   // it listens

	mu      sync.Mutex
	pending map[string]struct{}  // messages that are not sent yet, without the id
	wanted  map[string]time.Time // locks that another server wants, and when it said so
	others  time.Time            // of the last message of another server
}

const (
	mostPending = 10_000 // messages that are not sent yet; more changes are found by polling
	mostWanted  = 10_000
	mostAtOnce  = 1_000

	idLength    = 8
	kindChanged = "c"
	kindWanted  = "w"

	// othersTime is for how long after a message of another server the active one takes into account
	// that another may have a queue.
	othersTime = 10 * time.Second
)

func newFeed(c *Config, f *forwarder, q *queue) *feed {
	messenger, _ := c.Store.(lease.Messenger)
	return &feed{
		messenger: messenger, queue: q, forwarder: f, logger: c.Logger, id: rand.Text()[:idLength],
		some: make(chan struct{}, 1), pending: make(map[string]struct{}), wanted: make(map[string]time.Time),
	}
}

// run listens and sends until ctx ends.
func (f *feed) run(ctx context.Context) {
	if f.messenger == nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { f.send(ctx) })
	for failures := 0; ctx.Err() == nil; failures++ {
		err := f.messenger.Listen(ctx, func() {
			failures = 0
			f.hears.Store(true)
			f.queue.watches.changeAll() // messages can have been missed
			f.queue.wakeAll()
		}, f.receive)
		f.hears.Store(false)
		if failures == 0 && ctx.Err() == nil {
			f.logger.LogAttrs(ctx, slog.LevelInfo, "changes_not_heard", slog.Any("error", err))
		}
		_ = pause.For(ctx, pause.Backoff(failures, aliveEvery, 5*aliveEvery))
	}
}

// tell announces a change, unless nobody else has waiters: this server is active, or without an
// election, and no other server has said that it wants the lock.
func (f *feed) tell(name string) {
	if f == nil || f.messenger == nil || f.forwarder.isActive() && !f.isWanted(name) {
		return
	}
	f.put(kindChanged + name)
}

// want asks the others to let this server have a lock once. The active server asks only if another
// one has a queue.
func (f *feed) want(name string) {
	if f == nil || f.messenger == nil || f.elected() && !f.hasOthers() {
		return
	}
	f.put(kindWanted + name)
}

// elected reports whether this server is active by an election.
func (f *feed) elected() bool { return f.forwarder != nil && f.forwarder.isActive() }

func (f *feed) hasOthers() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.others) < othersTime
}

// isDeaf reports whether other servers may have queues, and this one cannot receive their messages.
func (f *feed) isDeaf() bool {
	return f != nil && f.messenger != nil && !f.elected() && !f.hears.Load()
}

// isWanted reports whether another server wants a lock.
func (f *feed) isWanted(name string) bool {
	if f == nil || f.messenger == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.wanted[name]
	return ok && time.Since(at) < f.wantedTime()
}

// wantedTime is how long a lock counts as wanted. A server that still waits for it sends the
// message again with each poll.
func (f *feed) wantedTime() time.Duration { return 2 * max(f.queue.poll, DefaultPollInterval) }

// letGo records that the other servers have had their chance to get a lock.
func (f *feed) letGo(name string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.wanted, name)
}

func (f *feed) put(message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) >= mostPending {
		return
	}
	f.pending[message] = struct{}{}
	select {
	case f.some <- struct{}{}:
	default:
	}
}

// send sends messages as they come, and retries those that could not be sent.
func (f *feed) send(ctx context.Context) {
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-f.some:
		}
		for messages := f.next(); len(messages) > 0; messages = f.next() {
			bounded, cancel := f.queue.meter.bound(ctx)
			err := f.messenger.Send(bounded, messages)
			cancel()
			if err == nil {
				failures = 0
				continue
			}
			for _, m := range messages {
				f.put(m[idLength:])
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
	messages := slices.Collect(maps.Keys(f.pending))
	messages = messages[:min(len(messages), mostAtOnce)]
	for i, m := range messages {
		delete(f.pending, m)
		messages[i] = f.id + m
	}
	return messages
}

// receive handles a message.
func (f *feed) receive(message string) {
	if len(message) <= idLength || message[:idLength] == f.id {
		return
	}
	kind, name := message[idLength:idLength+1], message[idLength+1:]
	f.mu.Lock()
	f.others = time.Now()
	if kind == kindWanted {
		f.noteWanted(name)
	}
	f.mu.Unlock()
	if kind == kindChanged {
		f.queue.watches.change(name)
		f.queue.wake(name)
		f.queue.slotReleased(name)
	}
}

// noteWanted records that another server wants a lock. The caller holds mu.
func (f *feed) noteWanted(name string) {
	if len(f.wanted) >= mostWanted {
		maps.DeleteFunc(f.wanted, func(_ string, at time.Time) bool { return time.Since(at) >= f.wantedTime() })
	}
	if len(f.wanted) < mostWanted {
		f.wanted[name] = time.Now()
	}
}

// slotReleased wakes the waiter for a slot of a lock, if name is that of a slot.
func (q *queue) slotReleased(name string) {
	if lock, slot, ok := shared.ParseName(name); ok && slot > 0 {
		q.wake(slotLine(lock))
	}
}
