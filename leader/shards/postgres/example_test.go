package postgres_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// The work of a shard commits its writes in its term, or not at all.
func ExampleInTx() {
	poll := func(ctx context.Context, pool *pgxpool.Pool, s shards.Shard) error {
		err := postgres.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE tenant SET polled_at = now() WHERE name = $1", s.Name)
			return err
		})
		if errors.Is(err, leader.ErrNotLeader) {
			return nil // the present owner does it
		}
		return err
	}
	_ = poll // called with the context that Node.Run gives to its work
}

// Without connecting, New checks its Config.
func ExampleNew() {
	_, err := postgres.New(postgres.Config{DSN: "postgres://localhost/app"})
	fmt.Println(err)
	_, err = postgres.New(postgres.Config{DSN: "postgres://localhost/app", Namespace: namespace.Must(7, "tenant")})
	fmt.Println(err)
	// Output:
	// leader: Namespace is missing: name the group with a namespace of its own, such as namespace.Must(7, "tenant")
	// <nil>
}
