package pgtable

import (
	"fmt"

	"github.com/pglatch/pglatch/internal/pgsession"
)

// What follows is SQL of tables that count terms (era, n), under a lock of whoever counts, in rows with the columns
// era, n, timeline, system_identifier, server_start and written: each term is greater than all before.
//
// The timeline comes from the name of a WAL file, because pg_control_checkpoint() returns the
// old one until the first checkpoint after a promotion. An asynchronous standby that is promoted
// may have missed terms, but its timeline is higher; a server with another
// identifier, or a lower timeline after pg_upgrade, shows in that.
//
// The rest is for a history that none of that shows: the row is as another
// transaction or database wrote it (a dump was restored, a database copied or renamed), or
// the server was started since, perhaps with a copy of its files from before. Then n goes
// on at the clock, in milliseconds, which is beyond all that were counted before.
const (
	// TimelineSQL is the server's timeline.
	TimelineSQL = `('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::pg_catalog.bit(32)::pg_catalog.int8`
	// NextEraSQL is the era of the next term of a row t that an INSERT meets.
	NextEraSQL = `t.era + CASE WHEN t.system_identifier = excluded.system_identifier AND t.timeline <= excluded.timeline
		THEN (excluded.timeline - t.timeline)::pg_catalog.int4 ELSE 1 END`
	databaseSQL = `(SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())::pg_catalog.text || '/' || `
	// WrittenSQL is what a row says of its writer; xmin then agrees.
	WrittenSQL = databaseSQL + `pg_catalog.pg_current_xact_id()::pg_catalog.xid::pg_catalog.text`
	clockSQL   = `(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::pg_catalog.int8`
)

// NextTermSQL is the n of the next term of a row t that an INSERT meets. A start of the server is
// of no account if the condition holds, such as that the row is of the term that is known to be the last.
func NextTermSQL(known string) string {
	return fmt.Sprintf(`CASE WHEN NOT (%s)
		OR t.server_start IS DISTINCT FROM excluded.server_start AND NOT (%s)
		THEN greatest(t.n + 1, %s) ELSE t.n + 1 END`, asWrittenSQL("t"), known, clockSQL)
}

// asWrittenSQL reports whether a row is as the transaction left it that it names.
func asWrittenSQL(row string) string {
	return fmt.Sprintf("%[1]s.written IS NOT DISTINCT FROM %[2]s%[1]s.xmin::pg_catalog.text", row, databaseSQL)
}

// SameHistorySQL reports whether a row before and the row after it, names as SQL, were written in one history: on one
// timeline of one server that was not started in between, and with nothing lost or copied before.
func SameHistorySQL(before, after string) string {
	return fmt.Sprintf("%[1]s.timeline = %[2]s.timeline AND %[1]s.system_identifier = %[2]s.system_identifier "+
		"AND %[1]s.server_start IS NOT DISTINCT FROM %[2]s.server_start AND %[3]s", before, after, asWrittenSQL(before))
}

// Durable has a session commit synchronously whatever its role's default is: a term
// that a crash of the server forgets could be counted twice. It ends a watch.
func Durable(s *pgsession.Session) error {
	_, err := s.Query(`SELECT pg_catalog.set_config('synchronous_commit',
		CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
			ELSE pg_catalog.current_setting('synchronous_commit') END, false), pg_catalog.pg_backend_pid()`)
	return err
}
