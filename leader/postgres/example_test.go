package postgres_test

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// Only one node bills, and what a node that has lost leadership still writes is
// refused.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://localhost/shop") // for work
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	backend, err := postgres.New(postgres.Config{DSN: "postgres://localhost/shop", Key: namespace.Pair(1, 100)})
	if err != nil {
		log.Fatal(err)
	}
	elector, err := leader.New(leader.Config{Name: "billing", Backend: backend})
	if err != nil {
		log.Fatal(err)
	}
	err = elector.Run(ctx, func(ctx context.Context) error {
		return postgres.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE invoices SET sent = now() WHERE sent IS NULL")
			return err
		})
	})
	log.Print(err)
}
