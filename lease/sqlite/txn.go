package sqlite

import (
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A txn is one transaction, which decides requests that came together, one after the other. It
// keeps their changes until all are decided, so that each row is written once, however many
// requests changed it.
type txn struct {
	w     *writer
	now   time.Time // the same for all: the transaction is one moment
	top   uint64    // the greatest version of any name, ever
	seen  bool      // an answer depends on the time, which must be stored
	names map[string]*entry
	stray []dueName // wrong places of names
	tally tally     // changes of the counts
	err   error     // a row could not be read, or must not be written: the transaction fails
}

// An entry is a name in a transaction.
type entry struct {
	old     *record   // as it is stored; nil = not stored
	row     rules.Row // as it will be; zero = it will not be stored
	changed bool
	place   place // where a sweep has put it; zero = see placeFor
}

var errReserved = errors.New("more tokens have to be reserved, which another program that reads the file may hold up")

// row returns the stored row of a name; the zero Row if there is none.
func (t *txn) row(name string) (rules.Row, error) {
	e, err := t.entry(name)
	if err != nil {
		return rules.Row{}, err
	}
	return e.row, nil
}

func (t *txn) entry(name string) (*entry, error) {
	if e := t.names[name]; e != nil {
		return e, nil
	}
	old, err := t.w.row(name)
	if err != nil {
		t.err = err
		return nil, err
	}
	e := &entry{old: old}
	if old != nil {
		e.row = old.Row
		// A client that received the expiry of a lease must not find it current after a restart
		// with a clock that was set back.
		t.seen = t.seen || t.w.newlyExpired(&e.row, t.now)
	}
	t.names[name] = e
	return e, nil
}

// newlyExpired reports whether a row's lease has expired, and the stored time does not show that
// yet.
func (w *writer) newlyExpired(row *rules.Row, now time.Time) bool {
	return row.State(now) == lease.Expired && nanoseconds(row.ExpiresAt) > w.seen.Load()
}

// replace stores next, unless it is the row that was stored before.
func (t *txn) replace(row, next rules.Row) {
	if next.Version != row.Version {
		t.put(next, place{})
	}
}

func (t *txn) put(row rules.Row, at place) {
	if t.top = max(t.top, row.Version); t.top > t.w.state.reserved {
		t.err = &lease.BusyError{Retry: retryFull, Cause: errReserved}
	}
	e := t.names[row.Name]
	e.row, e.changed, e.place = row, true, at
}

// drop forgets a name. Its next lease gets a token above all others.
func (t *txn) drop(row rules.Row) {
	t.top = max(t.top, row.Version, row.Token)
	e := t.names[row.Name]
	e.row, e.changed = rules.Row{}, true
}

// write writes the changes and the time to SQLite, and reports whether there are any.
func (t *txn) write(c *conn) (wrote bool, err error) {
	t.tally = make(tally)
	for name, e := range t.names {
		if !e.changed {
			continue
		}
		wrote = true
		if err := t.store(c, name, e); err != nil {
			return true, err
		}
	}
	for _, d := range t.stray {
		wrote = true
		if err := c.exec(c.unqueue, number(d.swept), d.at, d.name); err != nil {
			return true, err
		}
	}
	if !wrote && !t.seen {
		return false, nil
	}
	for p := range t.tally {
		if t.tally[p] += t.w.tally[p]; t.tally[p] > 0 {
			err = c.exec(c.setTally, p, t.tally[p])
		} else {
			err = c.exec(c.dropTally, p)
		}
		if err != nil {
			return true, err
		}
	}
	next := t.w.state
	next.seen = t.now
	return true, c.exec(c.setState, next.values(c.row[:0])...)
}

// store writes one name, and its place if that changes.
func (t *txn) store(c *conn, name string, e *entry) error {
	if e.old != nil && live(&e.old.Row) {
		t.tally[period(e.old.ExpiresAt)]--
	}
	if e.row.Token == 0 {
		if e.old == nil {
			return nil
		}
		return c.exec(c.drop, name) // a trigger removes its place
	}
	if live(&e.row) {
		t.tally[period(e.row.ExpiresAt)]++
	}
	if e.place == (place{}) {
		e.place = placeFor(e.old, &e.row, t.now)
	}
	raw, err := encode(&record{e.row, e.place})
	if err != nil {
		return err
	}
	if e.old == nil || e.old.place != e.place {
		if e.old != nil {
			if err := c.exec(c.unqueue, number(e.old.place.swept), e.old.place.at, name); err != nil {
				return err
			}
		}
		if err := c.exec(c.enqueue, number(e.place.swept), e.place.at, name); err != nil {
			return err
		}
	}
	return c.exec(c.put, raw.values(c.row[:0])...)
}

// keep caches the committed rows.
func (w *writer) keep(t *txn) {
	w.top = t.top
	for name, e := range t.names {
		switch {
		case !e.changed:
		case e.row.Token == 0:
			w.rows.drop(name)
		default:
			w.rows.put(&record{e.row, e.place})
		}
	}
	for p, leases := range t.tally {
		if w.tally[p] = leases; leases <= 0 {
			delete(w.tally, p)
		}
	}
}

// row returns the file's record of a name; nil if there is none.
func (w *writer) row(name string) (*record, error) {
	if row := w.rows.get(name); row != nil {
		return row, nil
	}
	values := w.conn.row[:]
	ok, err := w.conn.first(w.conn.get, values, name)
	if err != nil || !ok {
		return nil, err
	}
	var raw rawRow
	if err := raw.scan(values); err != nil {
		return nil, err
	}
	row, err := raw.decode()
	if err != nil {
		return nil, err
	}
	w.rows.put(row)
	return row, nil
}

// A dueName is a name and one of its places in the table due.
type dueName struct {
	place
	name string
}

// known checks that d is the place of its name, and if not, removes it.
func (t *txn) known(d dueName) (*entry, error) {
	e, err := t.entry(d.name)
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	if e.old == nil || e.old.place != d.place {
		t.stray = append(t.stray, d)
		return nil, nil
	}
	return e, nil
}
