package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net/url"
	"path/filepath"
	"strconv"

	"modernc.org/sqlite"
)

// A conn is the connection that writes. It uses the driver directly, because database/sql would
// take a third of the time of a short statement. It is not safe for concurrent use.
type conn struct {
	raw                     driver.Conn
	prepared                []driver.Stmt // all of these:
	begin, commit, rollback driver.Stmt
	state, setState         driver.Stmt
	setTally, dropTally     driver.Stmt
	get, put, drop          driver.Stmt
	enqueue, unqueue        driver.Stmt
	row                     [columns]driver.Value
	args                    [columns]driver.NamedValue
}

// dataSource returns the driver's name of a file. Paths are escaped as in a URL.
func dataSource(path, vfs string, cfg Config, pragmas ...string) string {
	query := url.Values{
		"_defensive": {"1"}, // no statement can damage the file
		"_dqs":       {"0"}, // a misspelt column is an error, not a text
		"_error_rc":  {"1"}, // so that no error shows the text of another
		"_pragma": append([]string{
			"busy_timeout(" + strconv.FormatInt(cfg.BusyTimeout.Milliseconds(), 10) + ")",
			"trusted_schema(0)",
		}, pragmas...),
	}
	if vfs != "" {
		query.Set("vfs", vfs)
	}
	if path = filepath.ToSlash(path); path[0] != '/' {
		path = "/" + path // of a Windows drive
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()
}

func connect(ctx context.Context, dsn string) (*conn, error) {
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	raw, err := connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{raw: raw}, nil
}

// prepare prepares the statements. The tables must exist.
func (c *conn) prepare() error {
	for _, s := range []struct {
		stmt *driver.Stmt
		text string
	}{
		{&c.begin, "BEGIN IMMEDIATE"},
		{&c.commit, "COMMIT"},
		{&c.rollback, "ROLLBACK"},
		{&c.state, selectState},
		{&c.setState, putState},
		{&c.setTally, "REPLACE INTO expiring (period, leases) VALUES (?, ?)"},
		{&c.dropTally, "DELETE FROM expiring WHERE period = ?"},
		{&c.get, selectRow + " WHERE name = ?"},
		{&c.put, putRow},
		{&c.drop, "DELETE FROM leases WHERE name = ?"},
		{&c.enqueue, "INSERT OR IGNORE INTO due (swept, at, name) VALUES (?, ?, ?)"},
		{&c.unqueue, "DELETE FROM due WHERE swept = ? AND at = ? AND name = ?"},
	} {
		stmt, err := c.raw.Prepare(s.text)
		if err != nil {
			return err // stmt is no nil interface then
		}
		*s.stmt, c.prepared = stmt, append(c.prepared, stmt)
	}
	return nil
}

// close finalizes the statements and closes the connection, which copies the WAL into the file.
func (c *conn) close() error {
	var errs []error
	for _, stmt := range c.prepared {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, c.raw.Close())...)
}

// exec runs a statement that returns no rows.
func (c *conn) exec(stmt driver.Stmt, values ...driver.Value) error {
	_, err := stmt.(driver.StmtExecContext).ExecContext(context.Background(), c.bind(values))
	return err
}

// version returns a number that changes with each commit, of this connection or of others. A commit
// of another connection shows when the next transaction begins.
func (c *conn) version() (int64, error) {
	version, err := c.raw.(sqlite.FileControl).FileControlDataVersion("main")
	return int64(version), err
}

// first runs a query and fills dest with its first row. It reports whether there is a row.
func (c *conn) first(stmt driver.Stmt, dest []driver.Value, values ...driver.Value) (bool, error) {
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), c.bind(values))
	if err != nil {
		return false, err
	}
	err = rows.Next(dest)
	if closed := rows.Close(); closed != nil && (err == nil || errors.Is(err, io.EOF)) {
		err = closed
	}
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return err == nil, err
}

func (c *conn) bind(values []driver.Value) []driver.NamedValue {
	for i, v := range values {
		c.args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return c.args[:len(values)]
}

// each runs a query with n integer columns, and calls f with each row.
func (c *conn) each(query string, n int, f func([]int64)) error {
	stmt, err := c.raw.Prepare(query)
	if err != nil {
		return err
	}
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), nil)
	if err != nil {
		return errors.Join(err, stmt.Close())
	}
	dest, numbers := make([]driver.Value, n), make([]int64, n)
	for err = rows.Next(dest); err == nil; err = rows.Next(dest) {
		for i := range dest {
			numbers[i], _ = dest[i].(int64)
		}
		f(numbers)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, rows.Close(), stmt.Close())
}

// checkpoint moves the WAL into the file and syncs the file. It reports whether it moved all:
// another program that reads can prevent that.
func (c *conn) checkpoint() (complete bool, err error) {
	err = c.each("PRAGMA wal_checkpoint(FULL)", 3, func(n []int64) { // busy, frames, moved
		complete = n[0] == 0 && n[1] == n[2]
	})
	return complete, err
}

// run prepares and runs a statement once.
func (c *conn) run(text string) error {
	stmt, err := c.raw.Prepare(text)
	if err != nil {
		return err
	}
	return errors.Join(c.exec(stmt), stmt.Close())
}

// integer runs a query that returns one integer.
func (c *conn) integer(query string) (n int64, err error) {
	err = c.each(query, 1, func(row []int64) { n = row[0] })
	return n, err
}
