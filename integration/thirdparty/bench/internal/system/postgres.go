package system

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Sessions returns the footprint of a client whose connections carry a tag as their
// application_name.
func Sessions(ctx context.Context, dsn, tag string) (Footprint, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return Footprint{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read from
	rows, err := conn.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE application_name = $1", tag)
	if err != nil {
		return Footprint{}, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return Footprint{}, fmt.Errorf("count connections: %w", err)
	}
	return Footprint{Connections: len(pids), PIDs: pids}, nil
}

// tagged returns a connection config with the tag in it.
func tagged(env Env) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(env.Addresses[Postgres])
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = env.Tag
	return config, nil
}
