package postgres_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/postgres"
)

// The work and the run of the tick are committed together.
func ExampleDoTx() {
	closeTheDay := func(ctx context.Context, pool *pgxpool.Pool, tick time.Time) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			result, err := postgres.DoTx(ctx, tx, "close-the-day", tick, func(ctx context.Context) error {
				_, err := tx.Exec(ctx, "UPDATE day SET closed = true WHERE day = $1", tick)
				return err
			})
			if err == nil && !result.Did {
				fmt.Println("the tick is", result.State)
			}
			return err
		})
	}
	_ = closeTheDay // called by a scheduler, on each node
}

// A Runner for work outside of the database.
func ExampleNew() {
	newRunner := func(ctx context.Context, pool *pgxpool.Pool) (*once.Runner, error) {
		store, err := postgres.New(postgres.Config{Pool: pool})
		if err != nil {
			return nil, err
		}
		if err := store.Migrate(ctx); err != nil {
			return nil, err
		}
		return once.New(once.Config{Store: store, Window: 6 * time.Hour, Wait: time.Minute})
	}
	_ = newRunner
}

// The SQL of the table, for a migration.
func ExampleSchema() {
	fmt.Fprintln(os.Stdout, postgres.Schema(""))
	// Output:
	// CREATE TABLE IF NOT EXISTS "public"."pglatch_once" (
	// 	job text NOT NULL,
	// 	tick timestamptz NOT NULL,      -- the scheduled time
	// 	state text NOT NULL,            -- running, ran, failed, or open: it was given back
	// 	node text NOT NULL,             -- who runs it or ran it last
	// 	id text NOT NULL,               -- of that claim
	// 	token bigint NOT NULL,          -- greater than that of each earlier claim of the tick
	// 	began timestamptz NOT NULL,
	// 	expires_at timestamptz,         -- while it runs: when another may have it
	// 	ended timestamptz,
	// 	PRIMARY KEY (job, tick)
	// );
	// CREATE INDEX IF NOT EXISTS "pglatch_once_tick" ON "public"."pglatch_once" (tick)
}
