package leased

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	leaderdriver "github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/leaseerr"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/lease"
)

// A session is a lease of a member, and those of the shards that it owns. Whatever it has asked for
// and does not own is in given or in asked: it is renewed by nobody, and so ends by the ttl.
type session struct {
	*Backend
	id       string // random
	identity string
	member   lease.Claim
	keep     time.Duration // pins and drains that last for less are renewed
	seen     sight         // by the last Look that read all

	listener sync.WaitGroup
	stop     context.CancelFunc // of the listener; nil = there is none
	changed  chan struct{}      // of size one; nil = there is no listener

	renewing atomic.Int32 // renewals under way, which go before claims

	mu        sync.Mutex
	ttl       time.Duration
	over      error                  // why nothing is renewed any more; nil = it lasts
	renewals  uint64                 // that were begun
	held      map[string]holding     // by shard: what is owned
	given     map[string]lease.Claim // it may be held still: its release is not known to have succeeded
	asked     map[string]string      // it may be held: the key of a request whose answer is not known
	announced driver.Member
	changes   uint64 // of what is owned, and of announced
	told      uint64 // as many of which others can see
}

// A holding is the lease of a shard that is owned.
type holding struct {
	lease.Claim
	granted uint64 // how many renewals had begun when Claim returned it; unreturned = it has not yet
}

const unreturned = math.MaxUint64

var (
	errClosed = fmt.Errorf("the session is closed: %w", leaderdriver.ErrLost)
	errEnded  = fmt.Errorf("the session has ended: %w", leaderdriver.ErrLost)
)

// lasts returns why the session does not, or nil.
func (s *session) lasts() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// end notes why nothing is renewed any more, and returns the first reason that there was.
func (s *session) end(reason error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = reason
	}
	return s.over
}

// Lost returns nil: only Renew knows.
func (s *session) Lost() <-chan struct{} { return nil }

// Changed is nil if the store sends no messages and lets nobody wait for a change.
func (s *session) Changed() <-chan struct{} { return s.changed }

// Announce changes the metadata of the member's lease.
func (s *session) Announce(ctx context.Context, self driver.Member) error {
	if err := s.lasts(); err != nil {
		return s.failed("announcing", err)
	}
	s.mu.Lock()
	if s.announced != self {
		s.announced = self
		s.changes++
	}
	s.mu.Unlock()
	if err := s.publish(ctx); err != nil {
		return s.failed("announcing", err)
	}
	s.tell(ctx)
	return nil
}

// publish lets others see that something has changed, if they cannot yet. Without it their next
// Look takes what is owned to be as it was. Only the goroutine that claims and looks calls it: what is
// written last counts.
func (s *session) publish(ctx context.Context) error {
	s.mu.Lock()
	changes, ttl := s.changes, s.ttl
	metadata := memberMetadata(s.announced, changes)
	done := s.told == changes
	s.mu.Unlock()
	if done {
		return nil
	}
	err := again(ctx, func() error {
		_, err := s.store.Renew(ctx, lease.RenewRequest{Claim: s.member, TTL: ttl, Metadata: metadata})
		return err
	})
	if leaseerr.Over(err) {
		return s.end(fmt.Errorf("%w: %w", errEnded, err))
	}
	if err == nil {
		s.mu.Lock()
		s.told = changes
		s.mu.Unlock()
	}
	return err
}

// Leave releases all leases, several at a time.
func (s *session) Leave(ctx context.Context) error {
	_ = s.end(errClosed)
	s.mu.Lock()
	for name, h := range s.held {
		s.given[name] = h.Claim
	}
	clear(s.held)
	var names []string
	for name := range s.given {
		names = append(names, name)
	}
	for name := range s.asked {
		names = append(names, name)
	}
	s.mu.Unlock()
	released := s.releaseAll(ctx, names)
	err := again(ctx, func() error { return s.store.Release(ctx, s.member) })
	if err = errors.Join(released, ended(err)); err != nil {
		return s.failed("leaving", err)
	}
	s.tell(ctx)
	return nil
}

// Close forgets the session. What it owns ends by the ttl.
func (s *session) Close() error {
	_ = s.end(errClosed)
	if s.stop != nil {
		s.stop()
		s.listener.Wait()
	}
	return nil
}

// failed says what could not be done.
func (s *session) failed(doing string, err error) error {
	return fmt.Errorf("shards: %s of %s: %w", doing, s.config.Name, err)
}

// ended is err, or nil if that says that a lease has ended.
func ended(err error) error {
	if leaseerr.Over(err) {
		return nil
	}
	return err
}
