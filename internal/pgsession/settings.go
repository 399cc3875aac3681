package pgsession

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A setting is one server parameter of a lock session.
type setting struct {
	name, value string
	optional    bool // refused on some platforms; the session does without it
}

// settings are made after connect and never as startup parameters, which
// PgBouncer refuses. They override what a role or a database sets by default.
// See the PostgreSQL manual, sections 20.3.2 and 20.11.1, for their meaning.
//
// The server's TCP must not give a silent client up before the lease has ended,
// because the client may believe in it for nearly as long: four times a quarter of
// the lease, rounded up to seconds, pass until the third probe counts as lost.
func settings(t time.Duration, applicationName string, major int) []setting {
	probe := strconv.FormatInt(int64(math.Ceil(t.Seconds()/4)), 10)
	s := []setting{
		{name: "idle_session_timeout", value: ms(t)}, // the lease
		{name: "search_path", value: "pg_catalog"},   // nobody's pg_advisory_lock but PostgreSQL's
		{name: "lock_timeout", value: "0"},
		{name: "statement_timeout", value: "0"}, // a role's default would end waits
		{name: "idle_in_transaction_session_timeout", value: "10s"},
		{name: "default_transaction_read_only", value: "off"},
		{name: "default_transaction_isolation", value: "read committed"},
		{name: "client_min_messages", value: "error"},
		{name: "extra_float_digits", value: "1"}, // times of others' sessions are read exactly
		// A plan for the arrays at hand is no better, and making one costs more than a batch.
		{name: "plan_cache_mode", value: "force_generic_plan"},
		{name: "tcp_keepalives_idle", value: probe},
		{name: "tcp_keepalives_interval", value: probe},
		{name: "tcp_keepalives_count", value: "3"},
		{name: "tcp_user_timeout", value: ms(max(t, userTimeout)), optional: true},
		{name: "client_connection_check_interval", value: "1s", optional: true}, // Linux and BSD servers only
	}
	if major >= 17 {
		s = append(s, setting{name: "transaction_timeout", value: "0"})
	}
	if applicationName != "" {
		s = append(s, setting{name: "application_name", value: applicationName})
	}
	return s
}

// setSQL makes the settings and reads, in one round trip, what a lock session
// must know of its server.
func setSQL(settings []setting, withOptional bool) string {
	var b strings.Builder
	b.WriteString("SELECT ")
	for _, s := range settings {
		if s.optional && !withOptional {
			continue
		}
		fmt.Fprintf(&b, "pg_catalog.set_config('%s', %s, false), ", s.name, Literal(s.value))
	}
	b.WriteString(`pg_catalog.pg_is_in_recovery()::pg_catalog.text,
		pg_catalog.date_part('epoch', pg_catalog.current_setting('deadlock_timeout')::pg_catalog.interval)::pg_catalog.text,
		(SELECT pg_catalog.count(*) FROM pg_catalog.pg_language WHERE lanname OPERATOR(pg_catalog.=) 'plpgsql'
			AND pg_catalog.has_language_privilege(oid, 'USAGE'))::pg_catalog.text,
		(pg_catalog.current_setting('max_locks_per_transaction')::pg_catalog.int8 OPERATOR(pg_catalog.*)
			(pg_catalog.current_setting('max_connections')::pg_catalog.int8 OPERATOR(pg_catalog.+)
			pg_catalog.current_setting('max_prepared_transactions')::pg_catalog.int8))::pg_catalog.text,
		pg_catalog.pg_backend_pid()::pg_catalog.text`)
	return b.String()
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

// Literal quotes text as an SQL literal, in a form that does not depend on
// standard_conforming_strings.
func Literal(s string) string {
	s = strings.ReplaceAll(s, `'`, `''`)
	if strings.Contains(s, `\`) {
		return ` E'` + strings.ReplaceAll(s, `\`, `\\`) + `'`
	}
	return `'` + s + `'`
}
