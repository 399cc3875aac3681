package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"modernc.org/sqlite"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// readers is the number of concurrent reading connections.
const readers = 4

// A reader has the connections that read committed data. In WAL mode, readers and the writer do not
// wait for each other.
type reader struct {
	db     *sql.DB
	damage *damage // that the writer has found
	get    *sql.Stmt
	page   *sql.Stmt

	dueNow, ended *sql.Stmt // places; see selectDue
}

func openReader(ctx context.Context, path, vfs string, cfg Config, d *damage) (*reader, error) {
	connector, err := sqlite.NewConnector(dataSource(path, vfs, cfg, "query_only(1)"))
	if err != nil {
		return nil, err
	}
	r := &reader{db: sql.OpenDB(connector), damage: d}
	r.db.SetMaxOpenConns(readers)
	r.db.SetMaxIdleConns(readers)
	if r.get, err = r.db.PrepareContext(ctx, selectRow+" WHERE name = ?"); err == nil {
		r.page, err = r.db.PrepareContext(ctx, selectRow+" WHERE name > ? AND name >= ? ORDER BY name LIMIT ?")
	}
	if err == nil {
		r.dueNow, err = r.db.PrepareContext(ctx, selectDue)
	}
	if err == nil {
		r.ended, err = r.db.PrepareContext(ctx, selectEnded)
	}
	if err != nil {
		return nil, errors.Join(err, r.db.Close())
	}
	return r, nil
}

func (r *reader) close() error { return r.db.Close() }

// Get implements [lease.Store]. It does not wait for operations that change leases.
func (s *Store) Get(ctx context.Context, name string) (lease.Record, error) {
	if err := lease.ValidateName(name); err != nil {
		return lease.Record{}, err
	}
	row, err := s.reader.row(ctx, name)
	if errors.Is(err, sql.ErrNoRows) {
		return lease.Record{}, &lease.NotFoundError{Name: name}
	}
	if err != nil {
		return lease.Record{}, s.readError(ctx, err)
	}
	now := s.clock.now()
	if err := s.storeExpiry(ctx, now, row); err != nil {
		return lease.Record{}, err
	}
	return row.Record(now), nil
}

// storeExpiry stores the time before any answer says that a lease has expired, unless a later time
// is stored already. The reason: the store may be opened again with an earlier clock. So each
// expiry costs at most one transaction, which other requests share.
func (s *Store) storeExpiry(ctx context.Context, now time.Time, rows ...*record) error {
	stored := moment(s.seen.Load())
	for _, row := range rows {
		if hasExpired(&row.Row, now) && row.ExpiresAt.After(stored) {
			return s.do(ctx, func(t *txn) error {
				t.seen = true
				return nil
			})
		}
	}
	return nil
}

// List implements [lease.Store]. It reads in pages, and holds nothing between them.
func (s *Store) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	return rules.List(r, func(after string, size int) ([]lease.Record, error) {
		rows, err := s.reader.rows(ctx, after, r.Prefix, size)
		if err != nil {
			return nil, s.readError(ctx, err)
		}
		now := s.clock.now()
		records := make([]lease.Record, len(rows))
		for i, row := range rows {
			records[i] = row.Record(now)
		}
		return records, s.storeExpiry(ctx, now, rows...)
	})
}

func (r *reader) row(ctx context.Context, name string) (*record, error) {
	if err := r.damage.found(); err != nil {
		return nil, err
	}
	var raw rawRow
	fields := raw.fields()
	if err := r.get.QueryRowContext(ctx, name).Scan(fields[:]...); err != nil {
		return nil, err
	}
	return raw.decode()
}

// rows reads a page.
func (r *reader) rows(ctx context.Context, after, from string, limit int) ([]*record, error) {
	if err := r.damage.found(); err != nil {
		return nil, err
	}
	rows, err := r.page.QueryContext(ctx, after, from, limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var page []*record
	var raw rawRow
	fields := raw.fields()
	for rows.Next() {
		if err := rows.Scan(fields[:]...); err != nil {
			return nil, err
		}
		row, err := raw.decode()
		if err != nil {
			return nil, err
		}
		page = append(page, row)
	}
	return page, rows.Err()
}

// readError distinguishes the end of ctx, and of the Store, from an error of the file.
func (s *Store) readError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return waitError(ctx)
	case s.queue.isClosed():
		return ErrClosed
	}
	if err = explain("read", s.path, err); errors.Is(err, lease.ErrBusy) {
		s.counters.busy.Add(1)
	}
	return err
}

func waitError(ctx context.Context) error {
	return fmt.Errorf("lease/sqlite: waiting for the file: %w", context.Cause(ctx))
}

// The due places: of names to sweep, and of names that a sweep has counted and that may be
// forgotten.
const (
	selectDue   = "SELECT swept, at, name FROM due WHERE swept = 0 AND at <= ? ORDER BY at LIMIT ?"
	selectEnded = "SELECT swept, at, name FROM due WHERE swept = 1 AND at <= ? ORDER BY at LIMIT ?"
)

// due returns up to limit names that a sweep has work for, the oldest first. Each kind gets at
// least half of them if it needs it.
func (r *reader) due(ctx context.Context, now time.Time, retention time.Duration, limit int) ([]dueName, error) {
	ended, err := dueNames(ctx, r.ended, now.Add(-retention), limit)
	if err != nil {
		return nil, err
	}
	due, err := dueNames(ctx, r.dueNow, now, limit)
	if err != nil {
		return nil, err
	}
	due = due[:min(len(due), limit-min(len(ended), limit/2))]
	return append(due, ended[:min(len(ended), limit-len(due))]...), nil
}

func dueNames(ctx context.Context, query *sql.Stmt, until time.Time, limit int) ([]dueName, error) {
	rows, err := query.QueryContext(ctx, nanoseconds(until), limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var names []dueName
	for rows.Next() {
		var d dueName
		if err := rows.Scan(&d.swept, &d.at, &d.name); err != nil {
			return nil, err
		}
		names = append(names, d)
	}
	return names, rows.Err()
}
