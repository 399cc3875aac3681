package postgres

import (
	"context"
	"iter"
	"strings"

	"github.com/pglatch/pglatch/lease"
)

// pageSize is how many names List asks for at a time.
const pageSize = 500

const listSQL = `SELECT pg_catalog.to_json(a)::text FROM pglatch_lease.list($1::text, $2::text, $3::bigint) AS a`

// List yields records as lease.Store says, a page at a time: between pages it holds
// no connection, so its caller may use the Store.
func (s *Store) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if err := r.Validate(); err != nil {
			yield(lease.Record{}, err)
			return
		}
		for after, left := r.After, r.Limit; ; {
			size := pageSize
			if r.Limit > 0 {
				size = min(size, left)
			}
			records, err := s.page(ctx, after, r.Prefix, size)
			if err != nil {
				yield(lease.Record{}, err)
				return
			}
			for _, record := range records {
				// In the order of bytes, the names with the prefix come first of those from the prefix on.
				if !strings.HasPrefix(record.Name, r.Prefix) || !yield(record, nil) {
					return
				}
				after = record.Name
			}
			left -= len(records)
			if len(records) < size || (r.Limit > 0 && left == 0) {
				return
			}
		}
	}
}

// page returns at most size records after a name, from another on.
func (s *Store) page(ctx context.Context, after, from string, size int) (records []lease.Record, err error) {
	err = s.answers(ctx, func(a answer) { records = append(records, a.row.Record(a.seen)) }, listSQL, after, from, size)
	return records, err
}
