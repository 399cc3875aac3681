package postgres

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A Store keeps leases in PostgreSQL.
type Store struct {
	pool   *pgxpool.Pool
	own    bool   // pool is to be closed
	wait   string // LockTimeout as a setting
	group  *group
	schema pgtable.Schema // made by Migrate, and needed
	ready  atomic.Bool    // the schema in the database is new enough
}

var (
	_ lease.Store         = (*Store)(nil)
	_ lease.BatchRenewer  = (*Store)(nil)
	_ lease.HandOverer    = (*Store)(nil)
	_ lease.KeyedReleaser = (*Store)(nil)
	_ lease.Messenger     = (*Store)(nil)
)

// New returns a Store without connecting.
func New(config Config) (*Store, error) {
	config, err := config.validated()
	if err != nil {
		return nil, err
	}
	s := &Store{pool: config.Pool, schema: schema, wait: pgsession.Milliseconds(config.LockTimeout)}
	if s.pool == nil {
		s.own = true
		if s.pool, err = pgdsn.OpenPool(config.DSN); err != nil {
			return nil, &lease.InvalidError{Field: "Config.DSN", Value: "invalid", Remedy: err.Error()}
		}
	}
	s.group = newGroup(s)
	return s, nil
}

// Close waits for the operations in flight, and closes the Store's own pool. A
// pool that the caller passed stays open.
func (s *Store) Close() {
	s.group.close()
	if s.own {
		s.pool.Close()
	}
}

const getSQL = `SELECT pg_catalog.to_json(a)::text FROM pglatch_lease.get($1::text) AS a`

// Acquire grants a lease; see lease.Store. If guarded writes of the previous lease are in flight,
// it waits for them, for at most Config.LockTimeout.
func (s *Store) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	o, err := newAcquire(r)
	if err != nil {
		return lease.Lease{}, err
	}
	answers, err := s.group.do(ctx, s.wait, o)
	if err != nil {
		return lease.Lease{}, err
	}
	return acquired(r, o.id, answers[0])
}

// acquired converts an answer to the result of an acquire.
func acquired(r lease.AcquireRequest, id string, a answer) (lease.Lease, error) {
	switch {
	case a.err != nil:
		return lease.Lease{}, a.err
	case a.outcome == done:
		return a.row.Lease(a.seen), nil
	case a.outcome == busy:
		return lease.Lease{}, busyError(errGuarded)
	}
	_, l, err := rules.Acquire(a.row, 0, a.seen, r, id)
	if err == nil && l.ID == id {
		return lease.Lease{}, fmt.Errorf("lease/postgres: BUG: %s was available, and refused", r.Name)
	}
	return l, err
}

// Renew prolongs a lease; see lease.Store.
func (s *Store) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	results, err := s.RenewAll(ctx, []lease.RenewRequest{r})
	if err != nil {
		return lease.Lease{}, err
	}
	return results[0].Lease, results[0].Err
}

// Release ends a lease; see lease.Store. It does not wait for guarded writes in flight; the next
// Acquire does.
func (s *Store) Release(ctx context.Context, c lease.Claim) error {
	return s.ReleaseKeyed(ctx, lease.ReleaseRequest{Claim: c})
}

// ReleaseKeyed ends a lease; see lease.KeyedReleaser. Like Release, it does not wait for
// guarded writes.
func (s *Store) ReleaseKeyed(ctx context.Context, r lease.ReleaseRequest) error {
	o, err := newRelease(r)
	if err != nil {
		return err
	}
	answers, err := s.group.do(ctx, s.wait, o)
	if err != nil {
		return err
	}
	return released(r, answers[0])
}

func released(r lease.ReleaseRequest, a answer) error {
	switch {
	case a.err != nil || a.outcome == done:
		return a.err
	case a.outcome == busy:
		return busyError(errLocked)
	}
	_, err := rules.Release(a.row, a.seen, r)
	return err
}

// HandOver implements lease.HandOverer in one statement. If guarded writes of the ended lease are
// in flight, the acquire fails at once with *lease.BusyError. Otherwise the release, which has
// already taken effect, would have to wait with it. If other transactions have locked the row,
// HandOver waits for them, and release and acquire are two transactions.
func (s *Store) HandOver(ctx context.Context, r lease.ReleaseRequest, next lease.AcquireRequest) (l lease.Lease, ofRelease, ofAcquire error) {
	release, ofRelease := newRelease(r)
	acquire, ofAcquire := newAcquire(next)
	switch {
	case ofAcquire != nil:
		return lease.Lease{}, s.ReleaseKeyed(ctx, r), ofAcquire
	case ofRelease != nil:
		l, ofAcquire = s.Acquire(ctx, next)
		return l, ofRelease, ofAcquire
	}
	answers, err := s.group.do(ctx, s.wait, release, acquire)
	if err != nil {
		return lease.Lease{}, err, err
	}
	l, ofAcquire = acquired(next, acquire.id, answers[1])
	return l, released(r, answers[0]), ofAcquire
}

// Get returns the record of one name; see lease.Store.
func (s *Store) Get(ctx context.Context, name string) (lease.Record, error) {
	if err := lease.ValidateName(name); err != nil {
		return lease.Record{}, err
	}
	a, err := s.ask(ctx, getSQL, name)
	switch {
	case brokeOff(err): // Get changes nothing
		return lease.Record{}, busyError(err)
	case err != nil:
		return lease.Record{}, err
	case a.outcome != done:
		return lease.Record{}, &lease.NotFoundError{Name: name}
	}
	return a.row.Record(a.seen), nil
}

// ask runs a statement with at most one answer.
func (s *Store) ask(ctx context.Context, sql string, args ...any) (answer, error) {
	var only answer
	err := s.answers(ctx, func(a answer) { only = a }, sql, args...)
	return only, err
}

// answers runs a statement with any number of answers.
func (s *Store) answers(ctx context.Context, each func(answer), sql string, args ...any) error {
	return s.rows(ctx, parsing(each), sql, args...)
}

func parsing(each func(answer)) func(pgx.CollectableRow) error {
	return func(row pgx.CollectableRow) error {
		var text string
		if err := row.Scan(&text); err != nil {
			return err
		}
		a, err := parse(text)
		if err == nil {
			each(a)
		}
		return err
	}
}

// rows runs a statement on a connection of the pool.
func (s *Store) rows(ctx context.Context, each func(pgx.CollectableRow) error, sql string, args ...any) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return query(ctx, conn, each, sql, args...)
}

// conn takes a connection of the pool. The Store's first connection reads the version of the
// schema: the guards and the clock of an older version guarantee less.
func (s *Store) conn(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, unreachable(err)
	}
	if err := s.fit(ctx, conn); err != nil {
		conn.Release()
		return nil, err
	}
	return conn, nil
}

// fit checks the version of the schema until it is at least what this store needs.
func (s *Store) fit(ctx context.Context, db pgtable.Querier) error {
	if s.ready.Load() {
		return nil
	}
	version, err := s.schema.Installed(ctx, db)
	switch {
	case brokeOff(err): // nothing was requested yet
		return busyError(err)
	case err != nil:
		return failed(err)
	case version < s.schema.Version:
		return outdated(olderError(strconv.Itoa(version), s.schema.Version))
	}
	s.ready.Store(true)
	return nil
}

// query runs a statement. When it returns, it has read the last row.
func query(ctx context.Context, conn *pgxpool.Conn, each func(pgx.CollectableRow) error, sql string, args ...any) error {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return failed(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return failed(err)
		}
	}
	return failed(rows.Err())
}
