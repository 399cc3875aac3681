package postgres

import (
	"context"
	"iter"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

const listSQL = `SELECT pg_catalog.to_json(a)::text FROM pglatch_lease.list($1::text, $2::text, $3::bigint) AS a`

// List yields records page by page; see lease.Store. Between pages it holds no connection, so its
// caller may use the Store.
func (s *Store) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	return rules.List(r, func(after string, size int) ([]lease.Record, error) { return s.page(ctx, after, r.Prefix, size) })
}

// page returns at most size records that come after one name, starting at another.
func (s *Store) page(ctx context.Context, after, from string, size int) (records []lease.Record, err error) {
	err = s.answers(ctx, func(a answer) { records = append(records, a.row.Record(a.seen)) }, listSQL, after, from, size)
	return records, err
}
