package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/ledger"
)

// A txn is one transaction, in which requests that came together are decided one
// after the other. What they change is kept here until all are decided, so that a
// row is written once however many of them changed it.
type txn struct {
	w       *writer
	now     time.Time // the same for all: the transaction is one moment
	floor   uint64
	seen    bool                   // somebody heard what hangs on the time: it must be stored
	changed map[string]*ledger.Row // nil = dropped
	err     error                  // a row could not be read: the transaction fails
}

// row returns what is stored of a name; the zero Row if nothing is.
func (t *txn) row(name string) (ledger.Row, error) {
	row, ok := t.changed[name]
	if !ok {
		var err error
		if row, err = t.w.row(name); err != nil {
			t.err = err
			return ledger.Row{}, err
		}
	}
	if row == nil {
		return ledger.Row{}, nil
	}
	return *row, nil
}

// replace puts next, unless it is the row that was stored before.
func (t *txn) replace(row, next ledger.Row) {
	if next.Version != row.Version {
		t.put(next)
	}
}

// refuse notes a refusal. Who heard that a lease has expired must not find it
// current after a restart with a clock that was set back.
func (t *txn) refuse(err error) { t.seen = t.seen || errors.Is(err, lease.ErrExpired) }

func (t *txn) put(row ledger.Row) { t.changed[row.Name] = &row }

// drop forgets a name. The next lease of it gets a token above the floor.
func (t *txn) drop(row ledger.Row) {
	t.floor = max(t.floor, row.Version, row.Token)
	t.changed[row.Name] = nil
}

// write brings the changes to SQLite, and reports whether there are any. The time is
// stored in any case: by a row, or else beside them.
func (t *txn) write(c *conn) (bool, error) {
	if len(t.changed) == 0 && !t.seen {
		return false, nil
	}
	stamped := false
	for name, row := range t.changed {
		if row == nil {
			if err := c.exec(c.drop, name); err != nil {
				return true, err
			}
			continue
		}
		values, err := encode(c.row[:0], row)
		if err != nil {
			return true, err
		}
		if err := c.exec(c.put, values...); err != nil {
			return true, err
		}
		stamped = stamped || row.AcquiredAt.Equal(t.now) || row.ReleasedAt.Equal(t.now)
	}
	if stamped && !t.seen && t.floor == t.w.floor {
		return true, nil
	}
	return true, c.exec(c.setState, int64(t.floor), nanoseconds(t.now))
}

// row returns what the file has of a name; nil if nothing.
func (w *writer) row(name string) (*ledger.Row, error) {
	if row := w.rows.get(name); row != nil {
		return row, nil
	}
	values := w.conn.row[:]
	ok, err := w.conn.first(w.conn.get, values, name)
	if err != nil || !ok {
		return nil, err
	}
	row, err := decodeRow(values)
	if err != nil {
		return nil, err
	}
	w.rows.put(row)
	return row, nil
}

func decodeRow(values []driver.Value) (*ledger.Row, error) {
	var raw rawRow
	if err := raw.scan(values); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return raw.decode()
}
