package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// An operation is an acquire or a release, in the form of the schema's functions.
type operation struct {
	name, holder, id                     string
	token                                int64  // 0 = acquire
	key, metadata                        string // the key of a release is its digest
	ttl, lockDelay, minHold, maxLifetime int64  // microseconds
}

func newAcquire(r lease.AcquireRequest) (operation, error) {
	if err := r.Validate(); err != nil {
		return operation{}, err
	}
	metadata, err := encodeMetadata(r.Metadata)
	if err != nil {
		return operation{}, err
	}
	return operation{
		name: r.Name, holder: r.Holder, id: rules.NewID(), key: r.IdempotencyKey, metadata: metadata,
		ttl: micros(r.TTL), lockDelay: micros(r.LockDelay), minHold: micros(r.MinHold), maxLifetime: micros(r.MaxLifetime),
	}, nil
}

func newRelease(r lease.ReleaseRequest) (operation, error) {
	if err := r.Validate(); err != nil {
		return operation{}, err
	}
	return operation{name: r.Name, holder: r.Holder, id: r.ID, token: int64(r.Token), key: rules.ReleaseProof(r)}, nil
}

const (
	acquireSQL = `SELECT pg_catalog.to_json(pglatch_lease.acquire($1::text, $2::text, $3::text, $4::bigint, $5::text, $6::json,
	$7::bigint, $8::bigint, $9::bigint, $10::text))::text`
	releaseSQL = `SELECT pg_catalog.to_json(pglatch_lease.release($1::text, $2::text, $3::text, $4::bigint, $5::text, $6::text))::text`
	batchSQL   = `SELECT pg_catalog.to_json(b)::text FROM pglatch_lease.batch($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[],
	$6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text) AS b ORDER BY b.i`
)

// batchWait is how long an operation waits for a row if it shares a transaction with others. The
// others wait too, so after this time it is tried again alone.
const batchWait = "1ms"

// A session is a connection of the pool.
type session struct{ *pgxpool.Conn }

func (s *Store) connect(ctx context.Context) (connection, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nil, err
	}
	return session{conn}, nil
}

// operate implements connection. Several operations must be in the order of their names.
func (s session) operate(ctx context.Context, all []operation, wait string) ([]answer, error) {
	answers := make([]answer, 0, len(all))
	sql, args := statement(all, wait)
	err := query(ctx, s.Conn, parsing(func(a answer) { answers = append(answers, a) }), sql, args...)
	if err == nil && len(answers) != len(all) {
		err = fmt.Errorf("lease/postgres: BUG: %d answers to %d operations", len(answers), len(all))
	}
	return answers, err
}

func statement(all []operation, wait string) (string, []any) {
	if len(all) == 1 {
		o := all[0]
		if o.token != 0 {
			return releaseSQL, []any{o.name, o.holder, o.id, o.token, o.key, wait}
		}
		return acquireSQL, []any{o.name, o.holder, o.id, o.ttl, o.key, o.metadata, o.lockDelay, o.minHold, o.maxLifetime, wait}
	}
	return batchSQL, []any{
		column(all, func(o operation) string { return o.name }), column(all, func(o operation) string { return o.holder }),
		column(all, func(o operation) string { return o.id }), column(all, func(o operation) int64 { return o.token }),
		column(all, func(o operation) int64 { return o.ttl }), column(all, func(o operation) string { return o.key }),
		column(all, func(o operation) string { return o.metadata }), column(all, func(o operation) int64 { return o.lockDelay }),
		column(all, func(o operation) int64 { return o.minHold }), column(all, func(o operation) int64 { return o.maxLifetime }), wait,
	}
}

// column returns a value of each, for unnest.
func column[T, V any](all []T, of func(T) V) []V {
	values := make([]V, len(all))
	for i, one := range all {
		values[i] = of(one)
	}
	return values
}

// encodeMetadata returns the JSON to store.
func encodeMetadata(metadata map[string]string) (string, error) {
	if len(metadata) == 0 {
		return "{}", nil
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		return "", fmt.Errorf("lease/postgres: metadata: %w", err)
	}
	return string(text), nil
}
