package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/leader/postgres"
	shards "github.com/pglatch/pglatch/leader/shards/postgres"
	leasepostgres "github.com/pglatch/pglatch/lease/postgres"
	once "github.com/pglatch/pglatch/once/postgres"
)

// A tables makes and updates all tables.
type tables struct {
	pool *pgxpool.Pool
	dsn  string
}

func newTables(ctx context.Context, dsn string, _ []string) (role, error) {
	pool, err := connect(ctx, dsn)
	return &tables{pool: pool, dsn: dsn}, err
}

func (t *tables) close() { t.pool.Close() }

func (t *tables) answer(ctx context.Context, verb string, args []string) (string, error) {
	kinds := map[string]func(ctx context.Context) (migrate func(context.Context) error, script string, err error){
		"elections": t.elections, "shards": t.shards, "once": t.once, "leases": t.leases,
	}
	for kind, of := range laterTables {
		kinds[kind] = func(context.Context) (func(context.Context) error, string, error) { return of(t) }
	}
	migrate, script, err := kinds[args[0]](ctx)
	if err != nil {
		return "", err
	}
	switch verb {
	case "migrate":
		return "migrated", migrate(ctx)
	case "script": // the SQL of Schema, as a migration tool runs it
		_, err := t.pool.Exec(ctx, script)
		return "migrated", err
	}
	return "", unknown(verb)
}

func (t *tables) elections(context.Context) (func(context.Context) error, string, error) {
	key, err := entities.Text("leader")
	if err != nil {
		return nil, "", err
	}
	backend, err := postgres.New(postgres.Config{DSN: t.dsn, Key: key})
	if err != nil {
		return nil, "", err
	}
	return backend.Migrate, postgres.Schema(""), nil
}

func (t *tables) shards(context.Context) (func(context.Context) error, string, error) {
	backend, err := shards.New(shards.Config{DSN: t.dsn, Namespace: entities})
	if err != nil {
		return nil, "", err
	}
	return backend.Migrate, shards.Schema(""), nil
}

func (t *tables) once(context.Context) (func(context.Context) error, string, error) {
	store, err := once.New(once.Config{Pool: t.pool})
	if err != nil {
		return nil, "", err
	}
	return store.Migrate, once.Schema(""), nil
}

func (t *tables) leases(context.Context) (func(context.Context) error, string, error) {
	store, err := leasepostgres.New(leasepostgres.Config{Pool: t.pool})
	if err != nil {
		return nil, "", err
	}
	return store.Migrate, leasepostgres.Schema(), nil
}
