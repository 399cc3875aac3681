package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/ledger"
)

const columns = 15

// The statements name the columns in the order of encode and decode.
const (
	columnNames = "name, holder, id, token, idempotency_key, metadata, acquired_at, expires_at, released_at," +
		" lock_delay, min_hold, max_lifetime, cleared, uncounted, version"
	selectRow = "SELECT " + columnNames + " FROM leases"
	putRow    = "REPLACE INTO leases (" + columnNames + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

// encode appends the columns of a row. Times are nanoseconds since 1970, 0 = none;
// durations nanoseconds.
func encode(dest []driver.Value, r *ledger.Row) ([]driver.Value, error) {
	metadata := "{}"
	if len(r.Metadata) > 0 {
		text, err := json.Marshal(r.Metadata)
		if err != nil {
			return nil, err
		}
		metadata = string(text)
	}
	cleared := int64(0)
	if r.Cleared {
		cleared = 1
	}
	return append(dest, r.Name, r.Holder, r.ID, int64(r.Token), r.IdempotencyKey, metadata,
		nanoseconds(r.AcquiredAt), nanoseconds(r.ExpiresAt), nanoseconds(r.ReleasedAt),
		int64(r.LockDelay), int64(r.MinHold), int64(r.MaxLifetime),
		cleared, int64(r.Uncounted), int64(r.Version)), nil
}

// A rawRow is a row as SQLite has it.
type rawRow struct {
	name, holder, id, key, metadata string
	token, version                  int64
	acquired, expires, released     int64
	lockDelay, minHold, maxLifetime int64
	cleared, uncounted              int64
}

func (r *rawRow) fields() [columns]any {
	return [columns]any{
		&r.name, &r.holder, &r.id, &r.token, &r.key, &r.metadata, &r.acquired, &r.expires, &r.released,
		&r.lockDelay, &r.minHold, &r.maxLifetime, &r.cleared, &r.uncounted, &r.version,
	}
}

// scan fills r with what the driver returned. The table is STRICT and has no NULL,
// so a value of another type is damage.
func (r *rawRow) scan(values []driver.Value) error {
	for i, field := range r.fields() {
		ok := false
		switch field := field.(type) {
		case *string:
			*field, ok = values[i].(string)
		case *int64:
			*field, ok = values[i].(int64)
		}
		if !ok {
			return fmt.Errorf("column %d is a %T", i, values[i])
		}
	}
	return nil
}

func (r *rawRow) decode() (*ledger.Row, error) {
	row := &ledger.Row{
		Claim:          lease.Claim{Name: r.name, Holder: r.holder, ID: r.id, Token: uint64(r.token)},
		IdempotencyKey: r.key,
		AcquiredAt:     moment(r.acquired),
		ExpiresAt:      moment(r.expires),
		ReleasedAt:     moment(r.released),
		LockDelay:      time.Duration(r.lockDelay),
		MinHold:        time.Duration(r.minHold),
		MaxLifetime:    time.Duration(r.maxLifetime),
		Cleared:        r.cleared != 0,
		Uncounted:      int(r.uncounted),
		Version:        uint64(r.version),
	}
	if r.metadata == "{}" {
		return row, nil
	}
	if err := json.Unmarshal([]byte(r.metadata), &row.Metadata); err != nil {
		return nil, fmt.Errorf("metadata of %q: %w", r.name, err)
	}
	return row, nil
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func moment(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
