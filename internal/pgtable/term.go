package pgtable

import (
	"fmt"

	"github.com/pglatch/pglatch/internal/pgsession"
)

// The following SQL is for tables that count terms (era, n). The counting process holds a lock. The rows have the
// columns era, n, timeline, system_identifier, server_start and written. Each term is greater than all before.
//
// The timeline comes from the name of a WAL file, because pg_control_checkpoint() returns the old one until the first
// checkpoint after a promotion. A promoted asynchronous standby may have missed terms, but its timeline is higher. A
// server with another history is recognized by its identifier, or by a lower timeline after pg_upgrade.
//
// The remaining columns detect a history that none of this shows. Another transaction or database may have written
// the row: a dump was restored, a database copied or renamed. Or the server was started since, perhaps with an older
// copy of its files. n then continues at the clock, in milliseconds, which is greater than all n counted before.
const (
	// TimelineSQL is the server's timeline.
	TimelineSQL = `('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::pg_catalog.bit(32)::pg_catalog.int8`
	// NextEraSQL is the era of the next term, for a row t that an INSERT conflicts with.
	NextEraSQL = `t.era + CASE WHEN t.system_identifier = excluded.system_identifier AND t.timeline <= excluded.timeline
		THEN (excluded.timeline - t.timeline)::pg_catalog.int4 ELSE 1 END`
	databaseSQL = `(SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())::pg_catalog.text || '/' || `
	// WrittenSQL is a row's record of its writer; it matches the row's xmin.
	WrittenSQL = databaseSQL + `pg_catalog.pg_current_xact_id()::pg_catalog.xid::pg_catalog.text`
	clockSQL   = `(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::pg_catalog.int8`
)

// NextTermSQL is the n of the next term, for a row t that an INSERT conflicts with. A server start does not matter if
// the condition known holds, for example that the row has the term that is known to be the last.
func NextTermSQL(known string) string {
	return fmt.Sprintf(`CASE WHEN NOT (%s)
		OR t.server_start IS DISTINCT FROM excluded.server_start AND NOT (%s)
		THEN greatest(t.n + 1, %s) ELSE t.n + 1 END`, asWrittenSQL("t"), known, clockSQL)
}

// asWrittenSQL reports whether a row is unchanged since the transaction that it names.
func asWrittenSQL(row string) string {
	return fmt.Sprintf("%[1]s.written IS NOT DISTINCT FROM %[2]s%[1]s.xmin::pg_catalog.text", row, databaseSQL)
}

// SameHistorySQL reports whether a row before and the row after it, names as SQL, were written in one history: on one
// timeline of one server that was not started in between, and with nothing lost or copied before.
func SameHistorySQL(before, after string) string {
	return fmt.Sprintf("%[1]s.timeline = %[2]s.timeline AND %[1]s.system_identifier = %[2]s.system_identifier "+
		"AND %[1]s.server_start IS NOT DISTINCT FROM %[2]s.server_start AND %[3]s", before, after, asWrittenSQL(before))
}

// Durable makes a session commit synchronously, whatever its role's default is: a term that the server forgets in a
// crash could be counted twice. Durable ends a watch.
func Durable(s *pgsession.Session) error {
	_, err := s.Query(`SELECT pg_catalog.set_config('synchronous_commit',
		CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
			ELSE pg_catalog.current_setting('synchronous_commit') END, false), pg_catalog.pg_backend_pid()`)
	return err
}
