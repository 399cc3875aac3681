package riverlock

import (
	"context"
	"sync"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

const (
	firstLook = 50 * time.Millisecond // roughly the time River needs to store a snooze
	// keepFor is how long after the last snooze a key is watched although no job seems to wait for
	// it. River stores snoozes later, in batches, and retries if that fails.
	keepFor = 10 * time.Second
)

// A watch checks the keys for which jobs were snoozed, at growing intervals. Its goroutine runs
// while there are such keys.
type watch struct {
	look func(ctx context.Context, key namespace.Key) (done bool)
	most time.Duration // between two checks of a key

	ctx     context.Context // for the checks
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	keys  map[namespace.Tag]*watched
	alive bool // the goroutine runs
}

type watched struct {
	key   namespace.Key
	added time.Time
	next  time.Time
	pause time.Duration // before the check after the next
}

func (w *watch) init(look func(context.Context, namespace.Key) bool, most time.Duration) {
	w.look, w.most, w.keys = look, most, map[namespace.Tag]*watched{}
	w.ctx, w.cancel = context.WithCancel(context.Background())
}

// add schedules a check of the key soon.
func (w *watch) add(key namespace.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return
	}
	now, first := time.Now(), min(firstLook, w.most)
	k := w.keys[key.Tag()]
	if k == nil {
		k = &watched{key: key, next: now.Add(first)}
		w.keys[key.Tag()] = k
	}
	k.added, k.pause = now, first
	if soon := now.Add(first); k.next.After(soon) {
		k.next = soon
	}
	if !w.alive {
		w.alive = true
		w.running.Go(w.run)
	}
}

func (w *watch) close() {
	w.mu.Lock()
	w.cancel()
	w.mu.Unlock()
	w.running.Wait()
}

// run checks keys until there are none. It wakes up every firstLook, which is how soon add wants a
// check.
func (w *watch) run() {
	tick := time.NewTicker(min(firstLook, w.most))
	defer tick.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
		}
		for _, key := range w.due(time.Now()) {
			asked := time.Now()
			if w.look(w.ctx, key) {
				w.forget(key, asked)
			}
		}
		if w.idle() {
			return
		}
	}
}

// due returns the keys whose check is due, and schedules their next.
func (w *watch) due(now time.Time) (keys []namespace.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.keys {
		if k.next.After(now) {
			continue
		}
		k.pause = min(2*k.pause, w.most)
		k.next = now.Add(k.pause)
		keys = append(keys, k.key)
	}
	return keys
}

// forget drops a key, unless a job was snoozed for it recently.
func (w *watch) forget(key namespace.Key, asked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.keys[key.Tag()]; k != nil && asked.Sub(k.added) > keepFor {
		delete(w.keys, key.Tag())
	}
}

// idle reports whether there is nothing to watch. If so, it records that the goroutine has ended.
func (w *watch) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alive = len(w.keys) > 0
	return !w.alive
}
