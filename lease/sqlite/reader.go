package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
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
	for text, stmt := range map[string]**sql.Stmt{
		selectRow + " WHERE name = ?":                                     &r.get,
		selectRow + " WHERE name > ? AND name >= ? ORDER BY name LIMIT ?": &r.page,
		selectDue: &r.dueNow, selectEnded: &r.ended,
	} {
		if *stmt, err = r.db.PrepareContext(ctx, text); err != nil { //nolint:sqlclosecheck // they end with r.db
			return nil, errors.Join(err, r.db.Close())
		}
	}
	return r, nil
}

func (r *reader) close() error { return r.db.Close() }

// Get implements [lease.Store]. It does not wait for operations that change leases.
func (s *Store) Get(ctx context.Context, name string) (lease.Record, error) {
	if err := lease.ValidateName(name); err != nil {
		return lease.Record{}, err
	}
	records, err := s.read(ctx, s.reader.get, name)
	switch {
	case err != nil:
		return lease.Record{}, err
	case len(records) == 0:
		return lease.Record{}, &lease.NotFoundError{Name: name}
	}
	return records[0], nil
}

// List implements [lease.Store]. It reads in pages, and holds no lock or connection between them.
func (s *Store) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	return rules.List(r, func(after string, size int) ([]lease.Record, error) {
		return s.read(ctx, s.reader.page, after, r.Prefix, size)
	})
}

// read returns the records of a query, as they are at one moment. The store may be opened again with
// an earlier clock. So before any answer says that a lease has expired, read stores the time, unless
// a later time is stored already. Each expiry costs at most one transaction, which other requests
// share.
func (s *Store) read(ctx context.Context, stmt *sql.Stmt, args ...any) ([]lease.Record, error) {
	rows, err := query(ctx, s.reader, stmt, scanRecord, args...)
	if err != nil {
		return nil, s.readError(ctx, err)
	}
	now := s.writer.clock.now()
	records := make([]lease.Record, len(rows))
	for i, row := range rows {
		records[i] = row.Record(now)
	}
	if slices.ContainsFunc(rows, func(row *record) bool { return s.writer.newlyExpired(&row.Row, now) }) {
		err = s.do(ctx, func(t *txn) error {
			t.seen = true
			return nil
		})
	}
	return records, err
}

// query returns the rows of a query, unless damage was found.
func query[T any](ctx context.Context, r *reader, stmt *sql.Stmt, scan func(*sql.Rows) (T, error), args ...any) (all []T, err error) {
	if err := r.damage.found(); err != nil {
		return nil, err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		row, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

func scanRecord(rows *sql.Rows) (*record, error) {
	var raw rawRow
	fields := raw.fields()
	if err := rows.Scan(fields[:]...); err != nil {
		return nil, err
	}
	return raw.decode()
}

// readError distinguishes the end of ctx, and of the Store, from an error of the file.
func (s *Store) readError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return waitError(ctx)
	case s.closed.Load():
		return ErrClosed
	}
	if err = explain("read", s.writer.path, err); errors.Is(err, lease.ErrBusy) {
		s.writer.counters.busy.Add(1)
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
	ended, err := query(ctx, r, r.ended, scanDue, nanoseconds(now.Add(-retention)), limit)
	if err != nil {
		return nil, err
	}
	due, err := query(ctx, r, r.dueNow, scanDue, nanoseconds(now), limit)
	if err != nil {
		return nil, err
	}
	due = due[:min(len(due), limit-min(len(ended), limit/2))]
	return append(due, ended[:min(len(ended), limit-len(due))]...), nil
}

func scanDue(rows *sql.Rows) (d dueName, err error) {
	err = rows.Scan(&d.swept, &d.at, &d.name)
	return d, err
}
