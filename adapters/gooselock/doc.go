// Package gooselock implements goose's lock interfaces with pglatch's locks: if several replicas call
// Provider.Up at the same time, one applies the migrations and the others wait for it.
//
//	locker, err := gooselock.NewSession(gooselock.Config{Locker: locks})
//	if err != nil {
//		return err
//	}
//	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations, goose.WithSessionLocker(locker))
//
// # Which of the two
//
// NewSession is for goose.WithSessionLocker, New for goose.WithLocker. Both take the lock on a session of
// their Locker, never on a connection of goose. If that session ends while migrations run, another replica
// can get the lock. The two differ in what happens then:
//
//   - A SessionLocker knows the connection on which goose runs SQL migrations and those Go migrations that
//     have a transaction. It closes that connection and has the server cancel its statement: the migration is
//     rolled back and Up fails. If the server ended the lock's session, that takes milliseconds, in which the
//     other replica may already have begun. If the network went silent, nothing more is sent before the other
//     can begin (see package advisory), but the cancel request may not arrive. A statement that the server
//     already runs is then completed, and committed if it is not part of a transaction. Go migrations without
//     a transaction run on other connections and continue. A SessionLocker needs the database/sql driver of
//     pgx; with another one SessionLock fails with ErrDriver.
//   - A Locker works with any driver, but stops nothing: running migrations continue to their end. After
//     that, Up fails with an error that matches advisory.ErrLost.
//
// So use NewSession if the *sql.DB is pgx's. In both cases goose keeps one connection of the *sql.DB for
// itself. If there are Go migrations without a transaction, allow at least two connections; otherwise these
// migrations wait forever. (goose rejects that configuration with a session locker, but not with a locker.)
//
// # What it does that goose's own lock does not
//
//   - It waits in PostgreSQL's queue, and gets the lock as soon as it is free. goose's own lock polls
//     every 5 s.
//   - Each call waits for its whole Timeout. goose's own lock counts its retries over the life of the locker:
//     after one wait has timed out, the next call that finds the lock held fails at once.
//   - The error of a timeout names the holder of the lock, and since when it has held the lock. The lock
//     is in the monitor and in "pglatch ls", with the label "goose migrations".
//   - It detects the loss of the lock.
//
// CREATE INDEX CONCURRENTLY in a migration (with "-- +goose NO TRANSACTION") proceeds while other replicas
// wait. They wait in steps of less than a second, and no step holds a snapshot for longer.
//
// # Fleets
//
// The key is goose's own number unless Config.Key says otherwise. Replicas with this package and replicas with
// goose's NewPostgresSessionLocker therefore exclude each other: change them one at a time. docs/reference/keys-of-other-tools.md
// has the procedure.
//
// # Poolers
//
// The Locker must reach PostgreSQL directly or through a pool in session mode. Through PgBouncer in
// transaction mode, a session lock would stay behind on the session that the pooler happened to choose,
// so advisory.Open returns advisory.ErrPooler. Give the Locker a separate DSN that bypasses the pooler.
// goose's *sql.DB may use a pooler, with New.
package gooselock
