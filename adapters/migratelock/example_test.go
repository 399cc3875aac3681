package migratelock_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/pglatch/pglatch/adapters/migratelock"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

var Migrations = namespace.Must(90, "migrations")

// Migrates when the program starts; of many replicas that start at one time, one does.
func Example() {
	up := func(ctx context.Context, dsn string, files fs.FS) error {
		locks, err := advisory.Open(ctx, advisory.Config{DSN: dsn})
		if err != nil {
			return err
		}
		defer locks.Close()
		db, err := sql.Open("pgx/v5", dsn)
		if err != nil {
			return err
		}
		driver, err := migratelock.New(ctx, migratelock.Config{
			Locker: locks,
			Key:    Migrations.ID(1),
			Open:   func() (database.Driver, error) { return pgx.WithInstance(db, &pgx.Config{}) },
		})
		if err != nil {
			return errors.Join(err, db.Close())
		}
		source, err := iofs.New(files, ".")
		if err != nil {
			return errors.Join(err, driver.Close())
		}
		m, err := migrate.NewWithInstance("iofs", source, "pgx5", driver)
		if err != nil {
			return errors.Join(err, driver.Close())
		}
		defer m.Close() // closes the driver, and db with it
		if err := m.Up(); !errors.Is(err, migrate.ErrNoChange) {
			return err
		}
		return nil
	}
	_ = up
}
