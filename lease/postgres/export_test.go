package postgres

import (
	"context"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/lease"
)

// A NextVersion is a program with the next version of the schema.
type NextVersion struct{ schema pgtable.Schema }

// Next returns a program whose version of the schema is this one's with a change.
func Next(change string) NextVersion {
	next := schema
	next.Version++
	next.SQL += change
	return NextVersion{next}
}

// New is the program's New.
func (v NextVersion) New(config Config) (*Store, error) {
	s, err := New(config)
	if err != nil {
		return nil, err
	}
	s.schema = v.schema
	return s, nil
}

// Guard is the program's Guard.
func (v NextVersion) Guard(ctx context.Context, tx PgxTx, c lease.Claim) error {
	return guardOf(c, v.schema.Version).Guard(ctx, pgsession.FromPgx(tx))
}
