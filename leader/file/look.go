package file

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
)

// A view is the result of one look at the file.
type view struct {
	record               // zero if there is none, or none that can be read
	state  string        // identifies the file's content
	clean  bool          // the last leadership ended in good order, or there was none
	damage *CorruptError // damage of a record that WithRepair replaces
	left   time.Duration // time from at until leadership is free
	at     moment        // time of the judgment
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
	v := view{state: stateOf(data, modified), at: b.now()}
	if v.record, v.damage = decode(b.path, data); v.damage != nil {
		return b.lookInDark(v)
	}
	lease := time.Duration(v.LeaseDuration)
	switch since := v.at.time - time.Duration(v.ClockTime); {
	case v.Holder == "":
		v.clean = v.Released
	case v.Clock == v.at.clock && since >= 0:
		v.left = lease - since
	default:
		v.left = lease - b.seen.unchanged(v.state, v.at)
	}
	return v, nil
}

// stateOf returns a value that differs from those of the file's earlier and later contents.
func stateOf(data []byte, modified time.Time) string { return fmt.Sprint(modified, string(data)) }

// lookInDark judges a missing or damaged record. It may have been a leader's, so its lease is waited for.
func (b *Backend) lookInDark(v view) (view, error) {
	if v.damage != nil && (v.damage.foreign || !b.repair) {
		return view{}, v.damage
	}
	known, err := readTermFile(b.termPath())
	if err != nil {
		return view{}, err
	}
	if v.clean = v.damage == nil && known == (termFile{}); v.clean {
		return v, nil // nobody ever led
	}
	v.state += fmt.Sprint(known)
	v.at = b.now()
	v.left = cmp.Or(known.lease, driver.DefaultLeaseDuration) - b.seen.unchanged(v.state, v.at)
	return v, nil
}

// A sighting is the last state that was seen, and since when it is unchanged.
type sighting struct {
	mu    sync.Mutex
	state string
	since moment
}

func (s *sighting) unchanged(state string, now moment) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != s.state || now.clock != s.since.clock {
		s.state, s.since = state, now
	}
	return now.time - s.since.time
}
