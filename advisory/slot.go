package advisory

import (
	"context"
	"math/rand/v2"
	"strconv"

	"github.com/pglatch/pglatch/namespace"
)

// maxSlots is the largest number of slots of a semaphore.
const maxSlots = 1000

// AcquireSlot takes one of n slots of the counting semaphore on key, 1 ≤ n ≤ 1000. At most n
// callers hold a slot at a time, across all processes. If processes pass different n, the largest
// n counts. The semaphore and the mutex on one key are independent. key must belong to a
// namespace.
//
// With one lock per connection (Config.LocksPerConn), each waiting call also uses a connection. If
// the context already carries a slot of the semaphore, the error is ErrReentrant. Options.Shared
// has no meaning here, and setting it is an error. A *TimeoutError names the holders. Other errors
// are those of Acquire.
func (l *Locker) AcquireSlot(ctx context.Context, key namespace.Key, n int) (*Lock, error) {
	if n < 1 || n > maxSlots {
		return nil, &ConfigError{"n", n, "use 1 to 1000 slots"}
	}
	if l.options.Shared {
		return nil, &ConfigError{"Options.Shared", true, "a slot is held by one caller; use n for several"}
	}
	slots := make([]namespace.Key, n)
	for i := range slots {
		var err error
		if slots[i], err = key.Companion("slot" + strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	turnstile, err := key.Companion("turnstile")
	if err != nil {
		return nil, err
	}
	r, err := l.request(ctx, key)
	if err != nil {
		return nil, err
	}
	r.lock.hold.SlotOf, r.slots, r.Gate, r.First = key.Tag(), slots, turnstile.Tag(), rand.IntN(n)
	r.Slots = make([]namespace.Tag, n)
	for i, slot := range slots {
		r.Slots[i] = slot.Tag()
	}
	return l.core.acquire(ctx, r)
}
