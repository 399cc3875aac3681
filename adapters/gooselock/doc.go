// Package gooselock has pglatch's locks in the form that goose takes: of several replicas that
// call Provider.Up at one time, one applies the migrations and the others wait for it.
//
//	locker, err := gooselock.NewSession(gooselock.Config{Locker: locks})
//	if err != nil {
//		return err
//	}
//	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations, goose.WithSessionLocker(locker))
//
// # Which of the two
//
// NewSession is for goose.WithSessionLocker, New for goose.WithLocker. Both take the lock on a
// session of the Locker that they are given, never on a connection of goose's. What differs is
// what happens if that session ends while migrations run, when another replica can get the lock:
//
//   - A SessionLocker knows the connection on which goose runs SQL migrations and those Go
//     migrations that have a transaction. It closes that connection and has the server cancel
//     its statement, so that the migration is rolled back and Up fails. If the lock's
//     session was ended at the server, that is milliseconds later, in which the other replica
//     may have begun. If the network went silent, nothing more is sent before the other
//     can begin (see package advisory), but the request to cancel may not arrive: a statement
//     that the server runs already is completed, and committed if it is no part of a transaction.
//     Go migrations without a transaction run on other connections and go on. It needs the
//     database/sql driver of pgx; with another one SessionLock fails with ErrDriver.
//   - A Locker works with any driver, and stops nothing: what runs goes on to its end, and then
//     Up fails with an error that matches advisory.ErrLost.
//
// So use NewSession if the *sql.DB is pgx's. In both cases goose keeps a connection of the *sql.DB for itself:
// give it room for two if there are Go migrations without a transaction, which otherwise wait
// for ever (goose refuses that with a session locker, not with a locker).
//
// # What it does that goose's own lock does not
//
//   - It waits in PostgreSQL's queue, and gets the lock when it is free; goose's own asks every 5 s.
//   - Each call waits for its whole Timeout. The retries of goose's own are counted for the
//     life of the locker: after it has waited once to the end, the next call that finds the
//     lock held fails at once.
//   - A timeout says who holds the lock, and since when. The lock is in the monitor and in
//     "pglatch ls", with the label "goose migrations".
//   - The loss of the lock is noticed.
//
// CREATE INDEX CONCURRENTLY in a migration (with "-- +goose NO TRANSACTION") goes on while other
// replicas wait: they wait in steps of less than a second, of which none holds a snapshot for longer.
//
// # Fleets
//
// The key is goose's own number unless Config.Key says otherwise, so that replicas with this
// package and replicas with goose's NewPostgresSessionLocker exclude each other: change them
// one at a time. docs/interop.md has the procedure.
//
// # Poolers
//
// The Locker must reach PostgreSQL directly or through a pool in session mode: through PgBouncer
// in transaction mode a session lock would stay behind on whatever session the pooler chose, and
// advisory.Open refuses that with advisory.ErrPooler. Give it a DSN of its own that avoids the pooler; goose's
// *sql.DB may go through one, with New.
package gooselock
