package demokit

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// A Database is a new database for the demo, on an existing server or on one of its own.
type Database struct {
	DSN  string
	Pool *pgxpool.Pool // the driver's own view, for its claims

	admin  string
	server *pgserver.Server // nil = not started by the demo
}

// OpenDatabase creates a database on the server that the environment names, or else
// on a server that it starts.
func OpenDatabase(ctx context.Context, n *Narrator) (*Database, error) {
	n.Say("looking for a PostgreSQL (if there is none on this machine, one is downloaded)")
	d := &Database{admin: cmp.Or(os.Getenv("PGLATCH_TEST_DATABASE_URL"), os.Getenv("TEST_DATABASE_URL"))}
	if d.admin == "" {
		server, err := pgserver.Start(ctx, pgserver.Options{})
		if err != nil {
			return nil, err
		}
		d.server, d.admin = server, server.DSN("")
	}
	if err := d.open(ctx, n); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Database) open(ctx context.Context, n *Narrator) (err error) {
	if d.DSN, err = pgserver.CreateDatabase(ctx, d.admin); err != nil {
		return err
	}
	if d.Pool, err = pgxpool.New(ctx, d.DSN); err != nil {
		return err
	}
	var version string
	if err := d.Pool.QueryRow(ctx, `SELECT current_setting('server_version')`).Scan(&version); err != nil {
		return err
	}
	config := d.Pool.Config().ConnConfig
	n.Say("PostgreSQL %s on %s:%d, database %s", version, config.Host, config.Port, config.Database)
	return nil
}

// Close removes what OpenDatabase created.
func (d *Database) Close() error {
	if d.Pool != nil {
		d.Pool.Close()
	}
	if d.server != nil {
		return d.server.Close()
	}
	if d.DSN == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return pgserver.DropDatabase(ctx, d.admin, d.DSN)
}

// Now returns the time by PostgreSQL's clock.
func (d *Database) Now(ctx context.Context) (t time.Time, err error) {
	err = d.Pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&t)
	return t, err
}
