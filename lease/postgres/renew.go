package postgres

import (
	"context"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

const renewSQL = `SELECT pg_catalog.to_json(a)::text FROM pglatch_lease.renew($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text, $7::text[]) AS a ORDER BY a.i`

// RenewAll renews many leases in one statement, so in one transaction with one commit. A request
// that cannot be granted does not affect the others. If there are several requests, and another
// transaction has locked the row of one of them, that request gets *lease.BusyError at once.
func (s *Store) RenewAll(ctx context.Context, all []lease.RenewRequest) ([]lease.RenewResult, error) {
	var b batch
	results := make([]lease.RenewResult, len(all))
	for i, r := range all {
		if err := r.Validate(); err != nil {
			results[i].Err = err
			continue
		}
		if err := b.add(i, r); err != nil {
			results[i].Err = err
		}
	}
	if len(b.index) == 0 {
		return results, nil
	}
	next := 0
	err := s.answers(ctx, func(a answer) {
		i := b.index[next]
		next++
		switch a.outcome {
		case done:
			results[i].Lease = a.row.Lease(a.seen)
		case busy:
			results[i].Err = busyError(errUnstoredExpiry)
			if a.row.Token == 0 {
				results[i].Err = busyError(errLocked)
			}
		default:
			_, _, results[i].Err = rules.Renew(a.row, a.seen, all[i])
		}
	}, renewSQL, b.names, b.holders, b.ids, b.tokens, b.ttls, s.wait, b.metadata)
	if err != nil {
		return nil, err
	}
	return results, nil
}

// A batch holds requests column by column, for unnest.
type batch struct {
	index               []int // of the request
	names, holders, ids []string
	tokens, ttls        []int64
	metadata            []*string // nil = unchanged
}

func (b *batch) add(i int, r lease.RenewRequest) error {
	var metadata *string
	if r.Metadata != nil {
		text, err := encodeMetadata(r.Metadata)
		if err != nil {
			return err
		}
		metadata = &text
	}
	b.index = append(b.index, i)
	b.names, b.holders, b.ids = append(b.names, r.Name), append(b.holders, r.Holder), append(b.ids, r.ID)
	b.tokens, b.ttls = append(b.tokens, int64(r.Token)), append(b.ttls, micros(r.TTL))
	b.metadata = append(b.metadata, metadata)
	return nil
}
