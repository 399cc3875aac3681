package postgres_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// A leader's write commits under its own term, or not at all.
func ExampleInTx() {
	closeTheDay := func(ctx context.Context, pool *pgxpool.Pool) error {
		err := postgres.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE day SET closed = true WHERE day = current_date")
			return err
		})
		if errors.Is(err, leader.ErrNotLeader) {
			return nil // the present leader does it
		}
		return err
	}
	_ = closeTheDay // called with the context that Elector.Run gives to its work
}

// Without connecting, New checks its Config.
func ExampleNew() {
	_, err := postgres.New(postgres.Config{DSN: "postgres://localhost/app"})
	fmt.Println(err)
	_, err = postgres.New(postgres.Config{DSN: "postgres://localhost/app", Key: namespace.Pair(100, 1)})
	fmt.Println(err)
	// Output:
	// leader: Key is invalid: name the election with a key, such as namespace.Pair(100, 1)
	// <nil>
}
