package sqlite

import (
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A state is the stored state of the whole store. Each transaction stores it.
type state struct {
	floor    uint64    // tokens and versions are above it
	reserved uint64    // and at most this; 0 = the store was closed, and all were at most floor
	era      uint64    // counts the times that the store was opened
	seen     time.Time // the last time on which an answer was based
}

const (
	selectState = "SELECT floor, reserved, era, seen_at, sum FROM state"
	putState    = "REPLACE INTO state (one, floor, reserved, era, seen_at, sum) VALUES (1, ?, ?, ?, ?, ?)"
)

// reserve is how many tokens and versions are reserved at once, in the file itself, before the
// first of them is given. If the store is not closed, they are skipped, so that a lost WAL repeats
// none. A JSON reader with only floating-point numbers keeps 2^33 times that exactly. When few are
// left, more are reserved.
const (
	reserve  = 1 << 20
	fewLeft  = 1 << 18
	noneLeft = 1 << 11
)

func (s state) values(dest []driver.Value) []driver.Value {
	floor, reserved, era, seen := int64(s.floor), int64(s.reserved), int64(s.era), nanoseconds(s.seen)
	return append(dest, floor, reserved, era, seen, checksum(nil, floor, reserved, era, seen))
}

func scanState(values []driver.Value) (state, error) {
	var n [5]int64
	for i := range n {
		var ok bool
		if n[i], ok = values[i].(int64); !ok || n[i] < 0 {
			return state{}, fmt.Errorf("%w: its state is no number", ErrCorrupt)
		}
	}
	if n[4] != 0 && n[4] != checksum(nil, n[:4]...) {
		return state{}, fmt.Errorf("%w: its state is not what was stored", ErrCorrupt)
	}
	return state{floor: uint64(n[0]), reserved: uint64(n[1]), era: uint64(n[2]), seen: moment(n[3])}, nil
}

// next returns the state of the store after opening. Whatever the file has lost, all tokens that
// were given are at most the new floor.
func (s state) next() (state, error) {
	s.era++
	s.floor = max(s.floor, s.reserved)
	s.reserved = s.floor + reserve
	if s.reserved > lease.MaxToken {
		return s, fmt.Errorf("%w: no token is left", ErrCorrupt)
	}
	return s, nil
}
