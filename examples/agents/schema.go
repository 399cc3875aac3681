package agents

import (
	"context"
	_ "embed" // for schemaSQL
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/advisory"
)

//go:embed schema.sql
var schemaSQL string

// createSchema creates the program's missing tables. Two sessions that run CREATE … IF NOT
// EXISTS at once can fail, so replicas take turns.
func createSchema(ctx context.Context, locker *advisory.Locker, pool *pgxpool.Pool) error {
	err := locker.Do(ctx, Schema.ID(1), func(ctx context.Context) error {
		_, err := pool.Exec(ctx, schemaSQL)
		return err
	})
	if err != nil {
		return fmt.Errorf("agents: create the schema: %w", err)
	}
	return nil
}
