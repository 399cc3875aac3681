package pgsession

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Setting is one server parameter of a lock session.
type Setting struct {
	Name, Value string
	Optional    bool // some platforms refuse it; the session works without it
}

// Settings returns the settings of a session with a lease of t on a server of that major version. They are
// applied after connecting and never as startup parameters, which PgBouncer refuses. They override the
// defaults of a role or a database. See the PostgreSQL manual, sections 20.3.2 and 20.11.1, for their
// meaning.
//
// The server's TCP must not give up a silent client before the lease has ended, because the client may
// rely on it for nearly as long. Four times a quarter of the lease, rounded up to seconds, pass until the
// third probe counts as lost.
func Settings(t time.Duration, applicationName string, major int) []Setting {
	probe := strconv.Itoa(Probe(t))
	s := []Setting{
		{Name: "idle_session_timeout", Value: Milliseconds(t)},                // the lease
		{Name: "idle_in_transaction_session_timeout", Value: Milliseconds(t)}, // the same, inside a transaction
		{Name: "search_path", Value: "pg_catalog"},                            // only PostgreSQL's own pg_advisory_lock
		{Name: "lock_timeout", Value: "0"},
		{Name: "statement_timeout", Value: "0"}, // a role's default would end waits
		{Name: "default_transaction_read_only", Value: "off"},
		{Name: "default_transaction_isolation", Value: "read committed"},
		{Name: "client_min_messages", Value: "error"},
		{Name: "extra_float_digits", Value: "1"}, // reads times of other sessions exactly
		// A custom plan for the current arrays is no better, and planning costs more than a batch.
		{Name: "plan_cache_mode", Value: "force_generic_plan"},
		{Name: "tcp_keepalives_idle", Value: probe},
		{Name: "tcp_keepalives_interval", Value: probe},
		{Name: "tcp_keepalives_count", Value: strconv.Itoa(Keepalives)},
		{Name: "tcp_user_timeout", Value: Milliseconds(max(t, userTimeout)), Optional: true},
		{Name: "client_connection_check_interval", Value: "1s", Optional: true}, // Linux and BSD servers only
	}
	if major >= 17 {
		s = append(s, Setting{Name: "transaction_timeout", Value: "0"})
	}
	if applicationName != "" {
		s = append(s, Setting{Name: "application_name", Value: applicationName})
	}
	return s
}

// Keepalives is the number of the server's TCP probes that may stay unanswered.
const Keepalives = 3

// Probe is the interval between probes, in seconds, that detects a client that is unreachable for t.
func Probe(t time.Duration) int { return int(math.Ceil(t.Seconds() / (Keepalives + 1))) }

// setSQL applies the settings and reads, in one round trip, the facts about the server that a lock session
// needs.
func setSQL(settings []Setting, withOptional bool) string {
	var b strings.Builder
	b.WriteString("SELECT ")
	for _, s := range settings {
		if s.Optional && !withOptional {
			continue
		}
		fmt.Fprintf(&b, "pg_catalog.set_config('%s', %s, false), ", s.Name, Literal(s.Value))
	}
	b.WriteString(`pg_catalog.pg_is_in_recovery()::pg_catalog.text,
		pg_catalog.date_part('epoch', pg_catalog.current_setting('deadlock_timeout')::pg_catalog.interval)::pg_catalog.text,
		(SELECT pg_catalog.count(*) FROM pg_catalog.pg_language WHERE lanname OPERATOR(pg_catalog.=) 'plpgsql'
			AND pg_catalog.has_language_privilege(oid, 'USAGE'))::pg_catalog.text,
		(pg_catalog.current_setting('max_locks_per_transaction')::pg_catalog.int8 OPERATOR(pg_catalog.*)
			(pg_catalog.current_setting('max_connections')::pg_catalog.int8 OPERATOR(pg_catalog.+)
			pg_catalog.current_setting('max_prepared_transactions')::pg_catalog.int8))::pg_catalog.text,
		(SELECT ` + microsSQL("backend_start") + ` FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))::pg_catalog.text,
		(SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())::pg_catalog.text,
		pg_catalog.pg_backend_pid()::pg_catalog.text`)
	return b.String()
}

// Milliseconds is a duration as a setting of PostgreSQL takes it, such as "250ms".
func Milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

// Literal quotes text as an SQL literal, in a form that does not depend on
// standard_conforming_strings.
func Literal(s string) string {
	s = strings.ReplaceAll(s, `'`, `''`)
	if strings.Contains(s, `\`) {
		return ` E'` + strings.ReplaceAll(s, `\`, `\\`) + `'`
	}
	return `'` + s + `'`
}
