package monitor

import (
	"context"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/namespace"
)

// applicationName is the monitor's own application_name in pg_stat_activity.
const applicationName = "pglatch-monitor"

// settingsSQL precedes locksSQL in one round trip. Sent together, the two are one transaction
// (PostgreSQL manual, section 53.2.4, "Pipelining"), and the settings are local to it: behind a
// pooler none leaks into another client's work. pg_temp is named because it would otherwise be
// searched first.
const settingsSQL = `
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('transaction_read_only', 'on', true),
       pg_catalog.set_config('statement_timeout', '2s', true),
       pg_catalog.set_config('lock_timeout', '1s', true),
       pg_catalog.set_config('datestyle', 'ISO', true),
       pg_catalog.current_setting('server_version'),
       pg_catalog.current_database()::text,
       pg_catalog.clock_timestamp(), pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid()`

// locksSQL reads no table but those behind the views, so it answers while the program's tables are
// locked. A session whose details are hidden from us has no backend_start; every other session has
// one. $1 = whether to select client_addr.
const locksSQL = `
SELECT l.classid, l.objid, l.objsubid,
       coalesce(l.pid, 0), l.mode, l.granted, l.waitstart,
       coalesce(a.application_name, ''), a.state, a.state_change, a.query_start, a.backend_start,
       CASE WHEN $1 THEN a.client_addr END,
       a.pid IS NOT NULL AND a.backend_start IS NULL
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory'
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.pid IS DISTINCT FROM pg_backend_pid()
ORDER BY l.objsubid, l.classid, l.objid, l.granted DESC, l.waitstart NULLS LAST, l.pid`

// A row is one row of locksSQL.
type row struct {
	ClassID, ObjID  uint32
	ObjSubID        uint16
	PID             uint32
	Mode            string
	Granted         bool
	WaitStart       *time.Time
	ApplicationName string
	State           *string
	StateChange     *time.Time
	QueryStart      *time.Time
	BackendStart    *time.Time
	ClientAddr      *netip.Addr
	Hidden          bool

	place place // not a column
}

func (r row) tag() namespace.Tag {
	return namespace.Tag{ClassID: r.ClassID, ObjID: r.ObjID, ObjSubID: r.ObjSubID}
}

// A source is the origin of rows.
type source struct {
	Server
	pid uint32 // of the session
}

// read queries the server once.
func read(ctx context.Context, conn *pgx.Conn, clientAddr bool) (source, []row, error) {
	var b pgx.Batch
	b.Queue(settingsSQL)
	b.Queue(locksSQL, clientAddr)
	results := conn.SendBatch(ctx, &b)
	defer func() { _ = results.Close() }() // the reads below return its error

	var server source
	var setting string
	err := results.QueryRow().Scan(&setting, &setting, &setting, &setting, &setting, &server.Version, &server.Database, &server.Now, &server.Standby, &server.pid)
	if err != nil {
		return source{}, nil, err
	}
	rows, err := results.Query()
	if err != nil {
		return source{}, nil, err
	}
	locks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	return server, locks, err
}
