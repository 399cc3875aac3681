package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/ledger"
)

// An operation is an acquire or a release, as the functions in the schema take it.
type operation struct {
	name, holder, id                     string
	token                                int64 // 0 = acquire
	key, metadata                        string
	ttl, lockDelay, minHold, maxLifetime int64 // microseconds
}

func newAcquire(r lease.AcquireRequest) (operation, error) {
	if err := r.Validate(); err != nil {
		return operation{}, err
	}
	metadata := "{}"
	if len(r.Metadata) > 0 {
		text, err := json.Marshal(r.Metadata)
		if err != nil {
			return operation{}, fmt.Errorf("lease: metadata: %w", err)
		}
		metadata = string(text)
	}
	return operation{
		name: r.Name, holder: r.Holder, id: ledger.NewID(), key: r.IdempotencyKey, metadata: metadata,
		ttl: micros(r.TTL), lockDelay: micros(r.LockDelay), minHold: micros(r.MinHold), maxLifetime: micros(r.MaxLifetime),
	}, nil
}

func newRelease(c lease.Claim) (operation, error) {
	if err := c.Validate(); err != nil {
		return operation{}, err
	}
	return operation{name: c.Name, holder: c.Holder, id: c.ID, token: int64(c.Token)}, nil
}

const (
	acquireSQL = `SELECT pg_catalog.to_json(pglatch_lease.acquire($1::text, $2::text, $3::text, $4::bigint, $5::text, $6::json,
	$7::bigint, $8::bigint, $9::bigint, $10::text))::text`
	releaseSQL = `SELECT pg_catalog.to_json(pglatch_lease.release($1::text, $2::text, $3::text, $4::bigint, $5::text))::text`
	batchSQL   = `SELECT pg_catalog.to_json(b)::text FROM pglatch_lease.batch($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[],
	$6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text) AS b ORDER BY b.i`
)

// batchWait is how long an operation of several in one transaction waits for a row:
// the others wait too, so it is tried again alone.
const batchWait = "1ms"

// operate does operations in one transaction, and returns their answers in order.
// Several have to be in the order of their names.
func (s *Store) operate(ctx context.Context, all []operation) ([]answer, error) {
	if len(all) == 1 {
		a, err := s.one(ctx, all[0])
		return []answer{a}, err
	}
	var (
		n                                      = len(all)
		names, holders, ids, keys, metadata    = make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		tokens, ttls, delays, holds, lifetimes = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	)
	for i := range all {
		o := &all[i]
		names[i], holders[i], ids[i], keys[i], metadata[i] = o.name, o.holder, o.id, o.key, o.metadata
		tokens[i], ttls[i], delays[i], holds[i], lifetimes[i] = o.token, o.ttl, o.lockDelay, o.minHold, o.maxLifetime
	}
	answers := make([]answer, 0, n)
	err := s.answers(ctx, func(a answer) { answers = append(answers, a) }, batchSQL,
		names, holders, ids, tokens, ttls, keys, metadata, delays, holds, lifetimes, batchWait)
	if err == nil && len(answers) != n {
		err = fmt.Errorf("lease: BUG: %d answers to %d operations", len(answers), n)
	}
	return answers, err
}

func (s *Store) one(ctx context.Context, o operation) (answer, error) {
	if o.token != 0 {
		return s.ask(ctx, releaseSQL, o.name, o.holder, o.id, o.token, s.wait)
	}
	return s.ask(ctx, acquireSQL, o.name, o.holder, o.id, o.ttl, o.key, o.metadata, o.lockDelay, o.minHold, o.maxLifetime, s.wait)
}
