package doctorcmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/internal/session"
)

// lockTable compares the number of locks with the capacity that all sessions share.
func (e *examination) lockTable(ctx context.Context) error {
	var perTransaction, connections, prepared, advisoryLocks, locks int64
	err := e.ask(ctx, `SELECT pg_catalog.current_setting('max_locks_per_transaction')::bigint, pg_catalog.current_setting('max_connections')::bigint,
		pg_catalog.current_setting('max_prepared_transactions')::bigint, pg_catalog.count(*) FILTER (WHERE locktype OPERATOR(pg_catalog.=) 'advisory'), pg_catalog.count(*)
		FROM pg_catalog.pg_locks WHERE NOT fastpath`, &perTransaction, &connections, &prepared, &advisoryLocks, &locks)
	if err != nil {
		return err
	}
	room := perTransaction * (connections + prepared)
	status, remedy := ok, ""
	switch {
	case locks*10 >= room*9:
		status, remedy = fail, "; a full table stops every query: raise max_locks_per_transaction"
	case locks*2 >= room:
		status, remedy = warn, "; a full table stops every query: raise max_locks_per_transaction"
	}
	e.note("lock table", status, "%d advisory of %d locks now, room for %d = max_locks_per_transaction %d × (max_connections %d + max_prepared_transactions %d)%s",
		advisoryLocks, locks, room, perTransaction, connections, prepared, remedy)
	return nil
}

// connections compares the number of sessions with max_connections.
func (e *examination) connections(ctx context.Context) error {
	var used, most, reserved int64
	err := e.ask(ctx, `SELECT pg_catalog.count(datid), pg_catalog.current_setting('max_connections')::bigint, pg_catalog.current_setting('superuser_reserved_connections')::bigint
		FROM pg_catalog.pg_stat_activity`, &used, &most, &reserved)
	if err != nil {
		return err
	}
	status := ok
	if used*5 >= (most-reserved)*4 {
		status = warn
	}
	e.note("connections", status, "%d of %d in use, %d of them reserved for superusers; needed: replicas × (work pool + MaxConns) + monitors", used, most, reserved)
	return nil
}

// sessionSettings tries the settings of lock sessions, in a separate transaction.
func (e *examination) sessionSettings(ctx context.Context) error {
	var ownIdle string
	if err := e.ask(ctx, `SELECT pg_catalog.current_setting('idle_session_timeout')`, &ownIdle); err != nil {
		return err
	}
	if err := e.try(ctx, "idle_session_timeout", fmt.Sprintf("%dms", e.ttl.Milliseconds())); err != nil {
		e.note("session timeout", fail, "idle_session_timeout cannot be set, so that a holder that was cut off would keep its locks: %v", err)
	} else {
		e.note("session timeout", ok, "idle_session_timeout (now %s) can be set to %v by lock sessions", ownIdle, e.ttl)
	}
	return e.keepalives(ctx)
}

// tcpUnits are the units of settings that PostgreSQL shows without one.
var tcpUnits = map[string]string{"tcp_keepalives_idle": "s", "tcp_keepalives_interval": "s", "tcp_user_timeout": "ms"}

// keepalives tries the TCP settings of lock sessions, and reports the resulting values on the
// server.
func (e *examination) keepalives(ctx context.Context) error {
	var set, refused []string
	for _, s := range pgsession.Settings(e.ttl, "", 0) {
		if !strings.HasPrefix(s.Name, "tcp_") && s.Name != "client_connection_check_interval" {
			continue
		}
		var before, during string
		if err := e.ask(ctx, fmt.Sprintf(`SELECT pg_catalog.current_setting('%[1]s'), pg_catalog.set_config('%[1]s', '%[2]s', true)`, s.Name, s.Value), &before, &during); err != nil {
			refused = append(refused, s.Name)
			continue
		}
		unit := tcpUnits[s.Name]
		set = append(set, fmt.Sprintf("%s %s%s (else %s%s)", s.Name, during, unit, before, unit))
	}
	if refused != nil {
		e.note("keepalives", warn, "the server refuses %s: a waiter that was cut off can stay in the queue until its slice ends", strings.Join(refused, ", "))
		return nil
	}
	remark := ""
	if strings.HasPrefix(e.conn.Config().Host, "/") {
		remark = "; a Unix socket has no TCP, and shows 0"
	}
	e.note("keepalives", ok, "lock sessions have %s%s", strings.Join(set, ", "), remark)
	return nil
}

// try applies a setting in a transaction, and ends it.
func (e *examination) try(ctx context.Context, name, value string) error {
	_, err := e.conn.Exec(ctx, `SELECT pg_catalog.set_config($1, $2, true)`, name, value)
	return err
}

func (e *examination) deadlockTimeout(ctx context.Context) error {
	var milliseconds float64
	err := e.ask(ctx, `SELECT (pg_catalog.date_part('epoch', pg_catalog.current_setting('deadlock_timeout')::interval) OPERATOR(pg_catalog.*) 1000)::double precision`, &milliseconds)
	if err != nil {
		return err
	}
	timeout := time.Duration(milliseconds * float64(time.Millisecond))
	e.step = min(timeout*9/10, 900*time.Millisecond, e.ttl/6)
	status, remark := ok, ""
	if timeout < 200*time.Millisecond {
		status, remark = warn, ": many round trips for waiters; its default is 1s"
	}
	e.note("deadlock_timeout", status, "%v, so waits are cut into steps of %v%s", timeout, e.step, remark)
	return nil
}

// failOver calculates the worst case of a fail-over.
func (e *examination) failOver() {
	pings := session.Times(e.ttl, 0)
	e.note("fail-over", ok, "with a SessionTTL of %v: a holder that dies frees its lock at once; one that is stopped or cut off after at most %v, "+
		"and a waiter gets it at most one wait step (%v) later: %v in all; the holder treats its lock as lost after %v; it pings every %v",
		e.ttl, e.ttl, e.step, e.ttl+e.step, pings.Trust(), pings.Interval)
	e.note("leadership", ok, "with a LeaseDuration of %v: a leader that dies is succeeded at once; one that is stopped or cut off after at most %v plus one wait step (%v): %v in all; "+
		"an idle guarded transaction delays the takeover by at most %v more, and a busy one by its longest statement; "+
		"a leader's context ends %v after its last good renewal at the latest",
		e.ttl, e.ttl, e.step, e.ttl+e.step, e.ttl, renew.Times{Duration: e.ttl}.WithDefaults().Trust())
}
