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
	backGrace = time.Second // after the leader has gone, for the other to come
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

// standBack waits until the candidate that is preferred leads, the leader has gone for a while
// without it, or it takes too long. The one that is preferred does not stand aside any more.
// false = quit has ended.
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
	gone, end := time.Now(), time.Now().Add(d.config.DrainTimeout+d.config.LeaseDuration)
	for now := gone; d.preferred.Load() == nil && now.Before(end) && now.Sub(gone) < backGrace; now = time.Now() {
		if d.inspect != nil {
			ctx, cancel := context.WithTimeout(quit, d.config.RenewTimeout)
			holder, ok, err := d.inspect(ctx)
			cancel()
			switch {
			case err == nil && ok && holder.Identity == *identity:
				return true
			case err != nil || ok:
				gone = time.Now() // as far as is known, it has not
			}
		}
		if pause.For(quit, backLook) != nil {
			return false
		}
	}
	return true
}
