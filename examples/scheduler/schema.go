package scheduler

import (
	"context"
	_ "embed" // for schemaSQL
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/namespace"
)

// The kinds of things that the program locks. Never reuse a number for something else.
var (
	elections = namespace.Must(1, "election")
	schemas   = namespace.Must(2, "schema")
)

// Schedulers is the key of the election: its leader runs the schedulers.
var Schedulers = elections.ID(1)

//go:embed schema.sql
var schemaSQL string

// createSchema creates the program's missing tables. Two sessions that run CREATE … IF NOT
// EXISTS at once can fail, so nodes take turns.
func createSchema(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		number, version, _ := schemas.ID(1).Tag().Pair()
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1, $2)`, number, version); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, schemaSQL)
		return err
	})
	if err != nil {
		return fmt.Errorf("scheduler: create the schema: %w", err)
	}
	return nil
}
