package system

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/stdlib"
)

// databaseSQL is the hand-written loop on one connection of database/sql, for which all
// workers queue up.
type databaseSQL struct {
	env Env
	db  *sql.DB
}

func openDatabaseSQL(_ context.Context, env Env) (Client, error) {
	config, err := tagged(env)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(1)
	return &databaseSQL{env, db}, nil
}

func (d *databaseSQL) Cycle(ctx context.Context, _ int, key uint32, held func()) error {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // returns it to the pool
	if _, err := conn.ExecContext(ctx, lockSQL, keySpace, key); err != nil {
		return err
	}
	held()
	_, err = conn.ExecContext(ctx, unlockSQL, keySpace, key)
	return err
}

func (d *databaseSQL) Footprint(ctx context.Context) (Footprint, error) {
	return Sessions(ctx, d.env.Addresses[Postgres], d.env.Tag)
}

func (d *databaseSQL) Close() error { return d.db.Close() }
