package file

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/pglatch/pglatch/leader"
)

// A view is what one look at the file tells.
type view struct {
	record               // zero if there is none, or none that can be read
	state  string        // the file itself
	clean  bool          // the last leadership ended in good order, or there was none
	damage *CorruptError // of a record that WithRepair replaces
	left   time.Duration // until leadership is free
}

func (v view) free() bool { return v.left <= 0 }

// look reads the file and judges its lease. It needs no lock.
func (b *Backend) look() (view, error) {
	data, modified, err := read(b.path)
	if err != nil {
		return view{}, err
	}
	if data == nil {
		return b.lookInDark(view{state: "missing"})
	}
	v := view{state: fmt.Sprint(modified, string(data))}
	if v.record, v.damage = decode(b.path, data); v.damage != nil {
		return b.lookInDark(v)
	}
	now, lease := b.clock.now(), time.Duration(v.LeaseDuration)
	switch since := now - time.Duration(v.ClockTime); {
	case v.Holder == "":
		v.clean = v.Released
	case v.Clock == b.clock.id && since >= 0:
		v.left = lease - since
	default:
		v.left = lease - b.seen.unchanged(v.state, now)
	}
	return v, nil
}

// lookInDark judges a record that is missing or damaged: it may have been that of a
// leader, which is waited for.
func (b *Backend) lookInDark(v view) (view, error) {
	if v.damage != nil && (v.damage.foreign || !b.repair) {
		return view{}, v.damage
	}
	known, err := readLedger(b.ledgerPath())
	if err != nil {
		return view{}, err
	}
	if v.clean = v.damage == nil && known == (ledger{}); v.clean {
		return v, nil // nobody ever led
	}
	v.state += fmt.Sprint(known)
	v.left = cmp.Or(known.lease, leader.DefaultLeaseDuration) - b.seen.unchanged(v.state, b.clock.now())
	return v, nil
}

// A witness knows since when what it saw last is unchanged.
type witness struct {
	mu    sync.Mutex
	state string
	since time.Duration
}

func (w *witness) unchanged(state string, now time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if state != w.state {
		w.state, w.since = state, now
	}
	return now - w.since
}
