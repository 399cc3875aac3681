package leased

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

const (
	bellTTL     = 5 * time.Second
	bellWait    = 50 * time.Second // of one request
	bellAtMost  = time.Second      // that telling others may take
	listenPause = 5 * time.Second
)

// message tells of a change in the group. Lock servers on the same store pass it over.
func (b *Backend) message() string { return "shards " + b.config.Name }

// tell lets all nodes look. That they did not hear of it is no error: they look from time to time.
func (b *Backend) tell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, bellAtMost)
	defer cancel()
	if messenger, ok := b.store.(lease.Messenger); ok {
		_ = messenger.Send(ctx, []string{b.message()})
		return
	}
	if _, ok := b.store.(WatchedStore); !ok {
		return
	}
	// A lease that somebody has and gives up has another version. Whoever is refused is heard by the release.
	l, err := b.store.Acquire(ctx, lease.AcquireRequest{Name: b.config.group(ofBell, ""), Holder: operator, TTL: bellTTL})
	if err == nil {
		_ = b.store.Release(ctx, l.Claim)
	}
}

// listen hears of changes until stop, on a store that tells of them.
func (s *session) listen() {
	messenger, sends := s.store.(lease.Messenger)
	watched, watches := s.store.(WatchedStore)
	if !sends && !watches {
		return
	}
	s.changed = make(chan struct{}, 1)
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.listener.Go(func() {
		for ctx.Err() == nil {
			var err error
			if sends {
				err = messenger.Listen(ctx, s.hear, func(message string) {
					if message == s.message() {
						s.hear()
					}
				})
			} else {
				err = s.watch(ctx, watched)
			}
			if errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrNotReady) {
				return // the server lets nobody wait, or not this one
			}
			_ = pause.For(ctx, listenPause/2+rand.N(listenPause))
		}
	})
}

// hear lets the node look.
func (s *session) hear() {
	select {
	case s.changed <- struct{}{}:
	default: // it has not looked yet
	}
}

// watch waits for changes of the bell until a request fails.
func (s *session) watch(ctx context.Context, store WatchedStore) error {
	bell := s.config.group(ofBell, "")
	for version, first := uint64(0), true; ; first = false {
		wait := bellWait
		if first {
			wait = 0
		}
		r, err := store.GetAfter(ctx, bell, version, wait)
		if err != nil && !errors.Is(err, lease.ErrNotFound) {
			return err
		}
		if r.Version != version {
			version = r.Version
			s.hear()
		}
	}
}
