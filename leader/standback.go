package leader

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// A candidate that stands back for another repeatedly looks for the leader.
const (
	backLook  = 100 * time.Millisecond
	backAlone = 6               // consecutive looks without a holder or waiter of the lock, after which the other counts as gone
	backGrace = 3 * time.Second // time for the other to come after the leader has gone; it may be on a busy machine
)

// StandBack implements driver.Candidate.
func (c candidate) StandBack(identity string) {
	c.preferred.Store(&identity)
	select {
	case c.interrupts <- struct{}{}:
	default:
	}
}

// untilNext returns a context that ends when the next attempt is due, or when the candidate must stand back.
func (d *drive) untilNext(quit context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(quit, d.next)
	if d.shows == nil { // StandBack is never called
		return ctx, cancel
	}
	var listener sync.WaitGroup // one at a time, so that none consumes the next one's interrupt
	listener.Go(func() {
		for d.preferred.Load() == nil { // the interrupt may be out of date
			select {
			case <-d.interrupts:
			case <-ctx.Done():
				return
			}
		}
		cancel()
	})
	return ctx, func() {
		cancel()
		listener.Wait()
	}
}

// standBack waits until the preferred candidate leads, or until it is clear that it does not come. The next
// attempt is then due at once. If this node is the preferred candidate, it stops standing aside. false = quit
// has ended.
func (d *drive) standBack(quit context.Context) bool {
	identity := d.preferred.Swap(nil)
	if identity == nil {
		return true
	}
	if *identity == d.config.Identity {
		d.aside, d.next = false, time.Now()
		return true
	}
	d.waitable = false
	d.standsBack.Store(true)
	defer d.standsBack.Store(false)
	d.log.Info("standing back for another candidate", slog.String("candidate", *identity))
	back := &back{drive: d, identity: *identity, free: time.Now()}
	for end := time.Now().Add(d.config.DrainTimeout + d.config.LeaseDuration); d.preferred.Load() == nil && time.Now().Before(end); {
		if back.over(quit) {
			break
		}
		if pause.For(quit, backLook) != nil {
			return false
		}
	}
	d.next = time.Now()
	return true
}

// A back is the progress of a candidate that stands back for another.
type back struct {
	*drive
	identity string    // of the preferred candidate
	led      Holder    // the leader that is about to go; zero = not seen
	free     time.Time // since when nobody leads, as far as is known
	alone    int       // consecutive looks that found neither a leader nor another candidate
}

// over looks once and reports whether the reason to stand back is gone. There are three cases: the preferred
// candidate leads; another node leads, or the same leader in another term; or nobody leads and nobody comes.
func (b *back) over(quit context.Context) bool {
	if b.inspect == nil {
		return time.Since(b.free) >= backGrace
	}
	ctx, cancel := context.WithTimeout(quit, b.config.RenewTimeout)
	defer cancel()
	holder, ok, err := b.inspect(ctx)
	switch {
	case err != nil: // assume that the leader has not gone
		b.free, b.alone = time.Now(), 0
		return false
	case !ok:
		return b.nobodyComes(ctx)
	}
	b.free, b.alone = time.Now(), 0
	if holder.Term.IsZero() && holder.Identity != b.identity {
		return false // the holder is taking over, or its backend does not count terms
	}
	if b.led == (Holder{}) {
		b.led = holder
	}
	return holder.Identity == b.identity || holder.Identity != b.led.Identity || holder.Term != b.led.Term
}

// nobodyComes reports whether the leader has gone and the preferred candidate is absent or too slow to follow
// it.
func (b *back) nobodyComes(ctx context.Context) bool {
	if b.contest != nil {
		// A single look can miss the other candidate between two waits, which are far apart on a busy
		// machine.
		if others, err := b.contest.Contested(ctx); others || err != nil {
			b.alone = 0
		} else {
			b.alone++
		}
	}
	return b.alone >= backAlone || time.Since(b.free) >= backGrace
}
