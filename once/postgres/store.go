package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/once"
)

// A Store keeps claims in a table of PostgreSQL.
type Store struct {
	pool   *pgxpool.Pool
	own    bool // pool is to be closed
	table  string
	create bool
	made   atomic.Bool // the table exists, as far as CreateTable is concerned
}

var _ once.Store = (*Store)(nil)

// New returns a Store without connecting.
func New(config Config) (*Store, error) {
	config.Table = cmp.Or(config.Table, DefaultTable)
	if err := config.validated(); err != nil {
		return nil, err
	}
	s := &Store{pool: config.Pool, table: config.Table, create: config.CreateTable}
	if s.pool == nil {
		pool, err := pgdsn.OpenPool(config.DSN)
		if err != nil {
			return nil, &once.InvalidError{Field: "Config.DSN", Value: "invalid", Remedy: err.Error()}
		}
		s.pool, s.own = pool, true
	}
	return s, nil
}

// Close waits for the operations in flight, and closes the Store's own pool. A pool that the caller
// passed stays open.
func (s *Store) Close() {
	if s.own {
		s.pool.Close()
	}
}

// Keeps implements once.Store.
func (s *Store) Keeps() time.Duration { return Keeps }

// durably makes a commit wait for the server's disk, whatever the default is.
const durably = `SELECT pg_catalog.set_config('synchronous_commit', 'on', true) WHERE pg_catalog.current_setting('synchronous_commit') IN ('off', 'local')`

// Claim implements once.Store in a short transaction.
func (s *Store) Claim(ctx context.Context, r once.Request) (c once.Claim, err error) {
	if err := r.Validate(); err != nil {
		return once.Claim{}, err
	}
	if err := s.ready(ctx); err != nil {
		return once.Claim{}, err
	}
	var refused error
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, durably); err != nil {
			return err
		}
		if refused = lock(ctx, pgsession.FromPgx(tx), s.table, r); refused == nil {
			c, refused = claim(ctx, pgsession.FromPgx(tx), s.table, running, r)
		}
		return refused
	})
	if refused != nil {
		return once.Claim{}, refused
	}
	return c, failed(s.table, err)
}

// ready creates the table if that is wanted and was not done yet.
func (s *Store) ready(ctx context.Context) error {
	if !s.create || s.made.Load() {
		return nil
	}
	err := s.Migrate(ctx)
	s.made.Store(err == nil)
	return err
}

const renewSQL = `UPDATE %s SET expires_at = greatest(expires_at, pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) ($5::bigint OPERATOR(pg_catalog.*) interval '1 microsecond'))
	WHERE ` + ofClaimSQL + ` AND state OPERATOR(pg_catalog.=) 'running' AND expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()
	RETURNING (extract(epoch FROM expires_at OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint`

// ofClaimSQL selects the row of a claim.
const ofClaimSQL = `job OPERATOR(pg_catalog.=) $1::pg_catalog.text AND tick OPERATOR(pg_catalog.=) $2::pg_catalog.timestamptz
	AND id OPERATOR(pg_catalog.=) $3::pg_catalog.text AND token OPERATOR(pg_catalog.=) $4::bigint`

// Renew implements once.Store.
func (s *Store) Renew(ctx context.Context, c once.Claim, ttl time.Duration) (time.Duration, error) {
	var us int64
	changed, err := s.change(ctx, &us, renewSQL, c, micros(ttl))
	if err == nil && !changed {
		err = &once.LostError{Job: c.Job, Tick: c.Tick}
	}
	return max(time.Duration(us)*time.Microsecond, 0), err
}

// endSQL changes nothing in a row that already ended in the same way. No other node can have had
// the tick, because its claim would have another id.
const endSQL = `UPDATE %s SET state = $5::pg_catalog.text, expires_at = NULL,
	ended = CASE WHEN $5::pg_catalog.text OPERATOR(pg_catalog.=) 'open' THEN NULL ELSE coalesce(ended, pg_catalog.clock_timestamp()) END
	WHERE ` + ofClaimSQL + ` AND (state OPERATOR(pg_catalog.=) 'running' OR state OPERATOR(pg_catalog.=) $5::pg_catalog.text)
	RETURNING 0::bigint`

// End implements once.Store, and removes some ticks that are older than all windows.
func (s *Store) End(ctx context.Context, c once.Claim, state once.State) error {
	to := map[once.State]string{once.Ran: ran, once.Failed: broken, once.Open: givenUp}[state]
	if to == "" {
		return &once.InvalidError{Field: "state", Value: state.String(), Remedy: "use Ran, Failed or Open"}
	}
	var zero int64
	changed, err := s.change(ctx, &zero, endSQL, c, to)
	switch {
	case err != nil:
		return err
	case !changed:
		return &once.LostError{Job: c.Job, Tick: c.Tick}
	}
	_, _ = s.sweep(ctx) // if it fails, the next End or Sweep does it
	return nil
}

// change changes the row of a claim in a transaction, and reports whether the row was there.
func (s *Store) change(ctx context.Context, number *int64, sql string, c once.Claim, last string) (changed bool, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, durably); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, fmt.Sprintf(sql, pgtable.Quote(s.table)), c.Job, text8601(c.Tick), c.ID, fmt.Sprint(c.Token), last)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			changed = true
			if err := rows.Scan(number); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return changed && err == nil, failed(s.table, err)
}

// Look implements once.Store.
func (s *Store) Look(ctx context.Context, job string, from, to time.Time) ([]once.Record, error) {
	if err := once.ValidateJob(job); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	sql := fmt.Sprintf("SELECT pg_catalog.to_json(r)::pg_catalog.text FROM ("+rowSQL+" WHERE job OPERATOR(pg_catalog.=) $1::pg_catalog.text "+
		"AND tick OPERATOR(pg_catalog.>=) $2::pg_catalog.timestamptz AND tick OPERATOR(pg_catalog.<=) $3::pg_catalog.timestamptz) AS r ORDER BY r.tick", pgtable.Quote(s.table))
	rows, err := s.pool.Query(ctx, sql, job, text8601(from), text8601(to))
	if err != nil {
		return nil, failed(s.table, err)
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (once.Record, error) {
		var text string
		if err := row.Scan(&text); err != nil {
			return once.Record{}, err
		}
		var r rowJSON
		err := json.Unmarshal([]byte(text), &r)
		return r.record(), err
	})
	return records, failed(s.table, err)
}
