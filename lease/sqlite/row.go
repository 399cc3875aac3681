package sqlite

import (
	"database/sql/driver"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A record is the file's data of a name.
type record struct {
	rules.Row
	place place
}

// live reports whether a lease counts when it expires.
func live(row *rules.Row) bool { return row.Token != 0 && row.ReleasedAt.IsZero() && !row.Cleared }

const columns = 19

// The statements name the columns in the order of fields and values.
const (
	columnNames = "name, holder, id, token, idempotency_key, metadata, acquired_at, expires_at, released_at," +
		" lock_delay, min_hold, max_lifetime, cleared, uncounted, version, due_at, swept, last_release, sum"
	selectRow = "SELECT " + columnNames + " FROM leases"
	putRow    = "REPLACE INTO leases (" + columnNames + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

// A rawRow is a row as SQLite has it. Times are nanoseconds since 1970, 0 = none;
// durations nanoseconds.
type rawRow struct {
	name, holder, id, key, metadata string
	token, version                  int64
	acquired, expires, released     int64
	lockDelay, minHold, maxLifetime int64
	cleared, uncounted              int64
	due, swept                      int64
	lastRelease                     string
	sum                             int64 // 0 = another program wrote the row
}

func (r *rawRow) fields() [columns]any {
	return [columns]any{
		&r.name, &r.holder, &r.id, &r.token, &r.key, &r.metadata, &r.acquired, &r.expires, &r.released,
		&r.lockDelay, &r.minHold, &r.maxLifetime, &r.cleared, &r.uncounted, &r.version, &r.due, &r.swept, &r.lastRelease, &r.sum,
	}
}

// values appends the columns.
func (r *rawRow) values(dest []driver.Value) []driver.Value {
	return append(dest, r.name, r.holder, r.id, r.token, r.key, r.metadata, r.acquired, r.expires, r.released,
		r.lockDelay, r.minHold, r.maxLifetime, r.cleared, r.uncounted, r.version, r.due, r.swept, r.lastRelease, r.sum)
}

func encode(r *record) (rawRow, error) {
	raw := rawRow{
		name: r.Name, holder: r.Holder, id: r.ID, key: r.IdempotencyKey, metadata: "{}",
		token: int64(r.Token), version: int64(r.Version),
		acquired: nanoseconds(r.AcquiredAt), expires: nanoseconds(r.ExpiresAt), released: nanoseconds(r.ReleasedAt),
		lockDelay: int64(r.LockDelay), minHold: int64(r.MinHold), maxLifetime: int64(r.MaxLifetime),
		cleared: number(r.Cleared), uncounted: int64(r.Uncounted),
		due: r.place.at, swept: number(r.place.swept), lastRelease: r.LastRelease,
	}
	if len(r.Metadata) > 0 {
		text, err := json.Marshal(r.Metadata)
		if err != nil {
			return raw, err
		}
		raw.metadata = string(text)
	}
	raw.sum = raw.checksum()
	return raw, nil
}

// checksum detects a changed bit in the file, which SQLite does not.
func (r *rawRow) checksum() int64 {
	text := make([]byte, 0, 512)
	for _, s := range [...]string{r.name, r.holder, r.id, r.key, r.metadata, r.lastRelease} {
		text = binary.LittleEndian.AppendUint32(text, uint32(len(s)))
		text = append(text, s...)
	}
	return checksum(text, r.token, r.version, r.acquired, r.expires, r.released, r.lockDelay, r.minHold, r.maxLifetime,
		r.cleared, r.uncounted, r.due, r.swept)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is never 0, which stands for none.
func checksum(text []byte, numbers ...int64) int64 {
	for _, n := range numbers {
		text = binary.LittleEndian.AppendUint64(text, uint64(n))
	}
	return 1<<32 | int64(crc32.Checksum(text, castagnoli))
}

// scan fills r with the driver's values. The table is STRICT and has no NULL, so a value of another
// type is damage.
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
			return fmt.Errorf("%w: column %d is a %T", ErrCorrupt, i, values[i])
		}
	}
	return nil
}

func (r *rawRow) decode() (*record, error) {
	if r.sum != 0 && r.sum != r.checksum() {
		return nil, fmt.Errorf("%w: the row of %q is not what was stored", ErrCorrupt, r.name)
	}
	row := &record{rules.Row{
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
		LastRelease:    r.lastRelease,
		Version:        uint64(r.version),
	}, place{swept: r.swept != 0, at: r.due}}
	if r.metadata == "{}" {
		return row, nil
	}
	if err := json.Unmarshal([]byte(r.metadata), &row.Metadata); err != nil {
		return nil, fmt.Errorf("%w: metadata of %q: %w", ErrCorrupt, r.name, err)
	}
	return row, nil
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
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
