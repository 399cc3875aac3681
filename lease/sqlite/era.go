package sqlite

import (
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/lease"
)

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

// seal records that the WAL is not needed any more, so that no tokens are skipped. The WAL's
// content must be in the file before.
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
