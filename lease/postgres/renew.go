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
	results := make([]lease.RenewResult, len(all))
	var index []int // of the requests that are sent
	var requests []lease.RenewRequest
	var metadata []*string // nil = unchanged
	for i, r := range all {
		text, err := "", r.Validate()
		if err == nil && r.Metadata != nil {
			text, err = encodeMetadata(r.Metadata)
		}
		if results[i].Err = err; err != nil {
			continue
		}
		index, requests, metadata = append(index, i), append(requests, r), append(metadata, nil)
		if r.Metadata != nil {
			metadata[len(metadata)-1] = &text
		}
	}
	if len(index) == 0 {
		return results, nil
	}
	next := 0
	err := s.answers(ctx, func(a answer) {
		i := index[next]
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
	}, renewSQL, column(requests, func(r lease.RenewRequest) string { return r.Name }), column(requests, func(r lease.RenewRequest) string { return r.Holder }),
		column(requests, func(r lease.RenewRequest) string { return r.ID }), column(requests, func(r lease.RenewRequest) int64 { return int64(r.Token) }),
		column(requests, func(r lease.RenewRequest) int64 { return micros(r.TTL) }), s.wait, metadata)
	if err != nil {
		return nil, err
	}
	return results, nil
}
