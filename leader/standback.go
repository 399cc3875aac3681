package leader

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// While a candidate stands back for another it looks who leads.
const (
	backLook  = 100 * time.Millisecond
	backAlone = 6               // looks in a row that find nobody who has the lock or waits for it, until the other is taken to be gone
	backGrace = 3 * time.Second // after the leader has gone, for the other to come, which may be on a busy machine
)

// StandBack implements driver.Candidate.
func (c candidate) StandBack(identity string) {
	c.preferred.Store(&identity)
	select {
	case c.interrupts <- struct{}{}:
	default:
	}
}

// untilNext returns a context that ends when the next attempt is due, and when the candidate is
// to stand back.
func (d *drive) untilNext(quit context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(quit, d.next)
	if d.shows == nil { // nobody asks for it
		return ctx, cancel
	}
	var listener sync.WaitGroup // one at a time, so that none takes what is meant for the next
	listener.Go(func() {
		for d.preferred.Load() == nil { // the interrupt may be an old one
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

// standBack waits until the candidate that is preferred leads, or until it is clear that it does not come. The next attempt is
// then due at once. The one that is preferred does not stand aside any more. false = quit has ended.
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

// A back is what a candidate that stands back for another has seen.
type back struct {
	*drive
	identity string    // of the one that is preferred
	led      Holder    // the leader that is to go; zero = not seen
	free     time.Time // since when, as far as is known, nobody leads
	alone    int       // looks in a row that found neither a leader nor another candidate
}

// over looks once, and reports whether there is no reason to stand back any more: the one that is preferred leads; another
// does, or the same in another term; or nobody leads, and nobody comes.
func (b *back) over(quit context.Context) bool {
	if b.inspect == nil {
		return time.Since(b.free) >= backGrace
	}
	ctx, cancel := context.WithTimeout(quit, b.config.RenewTimeout)
	defer cancel()
	holder, ok, err := b.inspect(ctx)
	switch {
	case err != nil: // as far as is known, the leader has not gone
		b.free, b.alone = time.Now(), 0
		return false
	case !ok:
		return b.nobodyComes(ctx)
	}
	b.free, b.alone = time.Now(), 0
	if holder.Term.IsZero() && holder.Identity != b.identity {
		return false // it takes over, or its backend does not count
	}
	if b.led == (Holder{}) {
		b.led = holder
	}
	return holder.Identity == b.identity || holder.Identity != b.led.Identity || holder.Term != b.led.Term
}

// nobodyComes reports whether the leader has gone, and the one that is preferred is not there to follow it, or is too slow.
func (b *back) nobodyComes(ctx context.Context) bool {
	if b.contest != nil {
		// One look could meet the other candidate between two waits, which lie far apart on a busy machine.
		if others, err := b.contest.Contested(ctx); others || err != nil {
			b.alone = 0
		} else {
			b.alone++
		}
	}
	return b.alone >= backAlone || time.Since(b.free) >= backGrace
}
