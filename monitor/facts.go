package monitor

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/introspect"
)

// factsEvery is the shortest interval between two queries for facts about the server.
const factsEvery = 5 * time.Second

// facts are the known facts of the server apart from its locks.
type facts struct {
	incident.Server
	at time.Time
}

// factsSQL counts the shared resources of all databases' locks and sessions (PostgreSQL manual, section
// 19.12, max_locks_per_transaction). The second statement of each batch sets what it needs.
const factsSQL = `
WITH taken AS MATERIALIZED (SELECT pid FROM pg_locks WHERE NOT fastpath),
     most AS (SELECT coalesce(pid, 0) AS pid, count(*) AS locks FROM taken WHERE pid IS DISTINCT FROM pg_backend_pid() GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3)
SELECT pg_is_in_recovery(),
       (SELECT count(*) FROM taken),
       (SELECT coalesce(json_agg(json_build_object('pid', m.pid, 'locks', m.locks, 'name', coalesce(a.application_name, ''), 'database', coalesce(a.datname::text, '')) ORDER BY m.locks DESC, m.pid), '[]')::text
        FROM most m LEFT JOIN pg_stat_activity a ON a.pid = m.pid),
       current_setting('max_locks_per_transaction')::int8 * (current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8),
       (SELECT coalesce(sum(numbackends), 0)::int8 FROM pg_stat_database),
       current_setting('max_connections')::int8 - current_setting('superuser_reserved_connections')::int8
         - coalesce(current_setting('reserved_connections', true), '0')::int8`

// listenersSQL lists the processes that can be asked: the application_name of a process's listening
// session ends with that of its lock sessions.
const listenersSQL = `
SELECT pid, substr(application_name, length($1) + 1) FROM pg_stat_activity
WHERE datname = current_database() AND starts_with(application_name, $1)`

// lookAround reads the facts, and the listeners, if enough time has passed.
func (m *Monitor) lookAround(ctx context.Context) error {
	if time.Since(m.around) < askEvery {
		return nil
	}
	var b pgx.Batch
	b.Queue(settingsSQL)
	b.Queue(listenersSQL, introspect.ListenerPrefix)
	b.Queue(commitsSQL)
	due := time.Since(m.facts.at) >= factsEvery
	if due {
		b.Queue(factsSQL)
	}
	results := m.conn.SendBatch(ctx, &b)
	defer func() { _ = results.Close() }() // the reads below return its error
	if _, err := results.Exec(); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	if m.listeners, err = pgx.CollectRows(rows, pgx.RowToStructByPos[introspect.Silent]); err != nil {
		return err
	}
	if m.commits, err = readCommits(results.QueryRow()); err != nil {
		return err
	}
	m.around = time.Now()
	if !due {
		return nil
	}
	f := facts{at: time.Now()}
	s := &f.Server
	var takers []byte
	if err := results.QueryRow().Scan(&s.Standby, &s.Locks, &takers, &s.LockRoom, &s.Connections, &s.ConnLimit); err != nil {
		return err
	}
	if err := json.Unmarshal(takers, &s.Takers); err != nil {
		return err
	}
	m.facts = f
	return nil
}
