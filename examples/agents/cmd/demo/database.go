package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/pglatch/pglatch/internal/pgtest/pgserver"
)

// A database is the demo's own, on a server that may be its own too.
type database struct {
	dsn    string
	admin  string
	server *pgserver.Server // nil = somebody else's
}

// openDatabase makes a database on the server that the environment names, or else
// on one that it starts.
func openDatabase(ctx context.Context) (*database, error) {
	d := &database{admin: cmp.Or(os.Getenv("PGLATCH_TEST_DATABASE_URL"), os.Getenv("TEST_DATABASE_URL"))}
	if d.admin == "" {
		server, err := pgserver.Start(ctx, pgserver.Options{})
		if err != nil {
			return nil, err
		}
		d.server, d.admin = server, server.DSN("")
	}
	dsn, err := pgserver.CreateDatabase(ctx, d.admin)
	if err != nil && d.server != nil {
		err = errors.Join(err, d.server.Close())
	}
	d.dsn = dsn
	return d, err
}

// close removes what openDatabase made.
func (d *database) close() error {
	if d.server != nil {
		return d.server.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return pgserver.DropDatabase(ctx, d.admin, d.dsn)
}
