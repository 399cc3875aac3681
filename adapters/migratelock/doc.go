// Package migratelock locks the migrations of golang-migrate so that they bear waiting replicas:
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
// Its drivers for PostgreSQL wait in one SELECT pg_advisory_lock, for as long as it takes, both
// in Lock and when they are made. Such a wait has a snapshot:
//
//   - CREATE INDEX CONCURRENTLY in a migration waits for the snapshots of others, hence for the
//     replicas that wait for the migration. PostgreSQL breaks the deadlock (SQLSTATE 40P01): the index is
//     left invalid and the database dirty, or a waiting replica fails.
//   - After migrate.ErrLockTimeout the wait goes on. It ends when the lock comes, which then
//     belongs to nobody, and the next replica waits for ever.
//
// # What this one does
//
// A Driver takes two locks: that on Config.Key, on a session of the Locker, and then, while no
// other replica wants it, the driver's own, on the session that migrates.
//
//   - Replicas wait for the first, in steps of less than a second; the index is built
//     while they do. New takes it too, because the driver locks when it is made.
//   - A wait ends after Config.Timeout, with an error that matches database.ErrLocked and tells who
//     holds the lock. A lock that comes after migrate.Migrate gave up is given back (Config.Unused).
//   - If the session of the first lock ends while migrations run, the second one still excludes the other replicas,
//     for it lasts as long as the session that migrates. The migration that runs is
//     completed; the next does not begin, and the error matches advisory.ErrLost.
//
// # Fleets
//
// The second lock is golang-migrate's own, so that replicas with and without this package exclude each other
// without further ado: change them one at a time. While a Driver waits for a replica of the
// old kind it does so in steps of 0.9 s. But replicas of the old kind wait as they always
// did: CREATE INDEX CONCURRENTLY is safe when the last of them is gone.
//
// # What it does not do
//
// It works with drivers that speak SQL to PostgreSQL and lock with pg_advisory_lock: pgx/v5 and postgres.
// The Locker must reach PostgreSQL directly or through a pool in session mode:
// advisory.Open refuses PgBouncer in transaction mode with advisory.ErrPooler. Give it a
// DSN that avoids the pooler; and the driver one too, for its own lock does not survive
// a pooler. migrate.New and the migrate command make drivers by themselves: use migrate.NewWithInstance or
// migrate.NewWithDatabaseInstance.
package migratelock
