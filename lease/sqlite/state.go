package sqlite

import (
	"database/sql/driver"
	"errors"
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

var (
	errNotMoved = errors.New("another program that reads the file keeps the WAL from being moved into it")
	errChanged  = errors.New("another program has changed the file")
)

// load empties the cache, and reads the state and the counts.
func (w *writer) load() error {
	w.rows.clear()
	values := w.conn.row[:5]
	ok, err := w.conn.first(w.conn.state, values)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: its state is gone", ErrCorrupt)
	}
	s, err := scanState(values)
	if err != nil {
		return err
	}
	if w.state.era != 0 && s.era != w.state.era {
		return fmt.Errorf("%w: another file is in its place", ErrCorrupt)
	}
	s.floor = max(s.floor, w.state.floor)
	s.reserved = max(s.reserved, w.state.reserved)
	w.top = max(w.top, s.floor)
	w.state = s
	w.tally = make(tally)
	return w.conn.each("SELECT period, leases FROM expiring", 2, func(n []int64) { w.tally[n[0]] = n[1] })
}

// newEra reserves tokens, in the file itself, before the first is given.
func (w *writer) newEra() error {
	if w.noEra {
		w.state.reserved = lease.MaxToken
		return nil
	}
	s, err := w.state.next()
	if err != nil {
		return err
	}
	if err := w.move(s); err != nil {
		return err
	}
	w.top = s.floor
	return nil
}

// reserveMore reserves more tokens before the reserved ones are used up. While another program
// reads, it tries once a second, until none are left.
func (w *writer) reserveMore() error {
	left := w.state.reserved - min(w.top, w.state.reserved)
	now := w.clock.now()
	if left >= fewLeft || left > noneLeft && now.Before(w.tried.Add(time.Second)) {
		return nil
	}
	w.tried = now
	s := w.state
	if s.reserved = w.top + reserve; s.reserved > lease.MaxToken {
		return fmt.Errorf("%w: no token is left", ErrCorrupt)
	}
	if err := w.move(s); errors.Is(err, lease.ErrBusy) && left > noneLeft {
		return nil
	} else if err != nil {
		return err
	}
	return nil
}

// seal records that the WAL is not needed any more, so that no tokens are skipped. Before
// that, the WAL's content must be in the file.
func (w *writer) seal() error {
	if err := w.moved(); err != nil {
		return err
	}
	s := w.state
	s.floor, s.reserved = w.top, 0
	return w.set(s)
}

// move stores a state and moves it into the file.
func (w *writer) move(s state) error {
	if err := w.set(s); err != nil {
		return err
	}
	if err := w.moved(); err != nil {
		return err
	}
	w.state = s
	return nil
}

func (w *writer) moved() error {
	complete, err := w.conn.checkpoint()
	if err == nil && !complete {
		err = &lease.BusyError{Retry: retryBusy, Cause: errNotMoved}
	}
	return err
}

// set stores a state in a transaction of its own.
func (w *writer) set(s state) error {
	c := w.conn
	if err := c.exec(c.begin); err != nil {
		return err
	}
	s.seen = w.clock.now()
	version, err := c.version()
	if err == nil && w.version != -1 && version != w.version {
		err = &lease.BusyError{Retry: retryBusy, Cause: errChanged} // it must be loaded first
	}
	if err == nil {
		err = c.exec(c.setState, s.values(c.row[:0])...)
	}
	if err == nil {
		err = c.exec(c.commit)
	}
	if err != nil {
		return errors.Join(err, c.exec(c.rollback))
	}
	if w.version, err = c.version(); err != nil {
		w.version = -1
	}
	return nil
}
