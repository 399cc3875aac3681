package gooselock_test

import (
	"context"
	"database/sql"
	"io/fs"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/pglatch/pglatch/adapters/gooselock"
	"github.com/pglatch/pglatch/advisory"
)

// Migrates when the program starts; of many replicas that start at one time, one does.
func Example() {
	migrate := func(ctx context.Context, dsn string, migrations fs.FS) error {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		locks, err := advisory.Open(ctx, advisory.Config{DSN: dsn})
		if err != nil {
			return err
		}
		defer locks.Close()

		locker, err := gooselock.NewSession(gooselock.Config{Locker: locks})
		if err != nil {
			return err
		}
		provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations, goose.WithSessionLocker(locker))
		if err != nil {
			return err
		}
		_, err = provider.Up(ctx)
		return err
	}
	_ = migrate
}
