// Package migratelock locks the migrations of golang-migrate in a way that does not block them while replicas wait:
//
//	driver, err := migratelock.New(ctx, migratelock.Config{
//		Locker: locks,
//		Key:    Migrations.ID(1),
//		Open:   func() (database.Driver, error) { return pgx.WithInstance(db, &pgx.Config{}) },
//	})
//	if err != nil {
//		return err
//	}
//	m, err := migrate.NewWithInstance("iofs", source, "pgx5", driver)
//
// # What golang-migrate's own lock does
//
// Its drivers for PostgreSQL wait in one SELECT pg_advisory_lock, without a time limit, both in Lock and when they
// are created. Such a wait holds a snapshot:
//
//   - CREATE INDEX CONCURRENTLY in a migration waits for the snapshots of other sessions, and therefore for the
//     replicas that wait for the migration. PostgreSQL breaks the deadlock (SQLSTATE 40P01): the index is left
//     invalid and the database dirty, or a waiting replica fails.
//   - After migrate.ErrLockTimeout the wait continues. It ends when the lock is granted. That lock then belongs to
//     no one, and the next replica waits forever.
//
// # What this one does
//
// A Driver takes two locks. The first is on Config.Key, on a session of the Locker. The second, taken while no
// other replica wants it, is the driver's own, on the session that migrates.
//
//   - Replicas wait for the first lock, in steps of less than a second; the index is built meanwhile. New takes it
//     too, because the driver locks when it is created.
//   - A wait ends after Config.Timeout, with an error that matches database.ErrLocked and names the holder of the
//     lock. A lock that is granted after migrate.Migrate gave up is released (Config.Unused).
//   - If the session of the first lock ends while migrations run, the second lock still excludes the other
//     replicas, because it lasts as long as the session that migrates. The running migration is completed. Once
//     this process has detected the loss, which takes milliseconds, it begins no other migration, and the error
//     matches advisory.ErrLost.
//
// # Fleets
//
// The second lock is golang-migrate's own. Replicas with and without this package therefore exclude each other
// without further setup: change them one at a time. A Driver waits for a replica without this package in steps of
// 0.9 s. But replicas without it wait as before: CREATE INDEX CONCURRENTLY is safe only when the last of them is
// gone.
//
// # What it does not do
//
// It works with drivers that speak SQL to PostgreSQL and lock with pg_advisory_lock: pgx/v5 and postgres. The
// Locker must reach PostgreSQL directly or through a pool in session mode: advisory.Open refuses PgBouncer in
// transaction mode with advisory.ErrPooler. Give the Locker a DSN that bypasses the pooler. Do the same for the
// driver, because its own lock does not survive a pooler. migrate.New and the migrate command create drivers
// themselves: use migrate.NewWithInstance or migrate.NewWithDatabaseInstance.
package migratelock
