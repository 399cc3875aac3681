package guardtest

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/sqlstate"
)

// traps is a schema with the operators, functions and types of PostgreSQL's that a guard may use. Each of them
// fails.
const traps = `
CREATE SCHEMA traps;
DO $do$ DECLARE o record; BEGIN
	FOR o IN SELECT oprname AS name, oprleft::regtype::text AS l, oprright::regtype::text AS r FROM pg_operator
		WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b'
			AND oprleft::regtype::text = ANY ('{text,integer,bigint,boolean,name,numeric,double precision,interval,timestamp with time zone}')
			AND oprright::regtype::text = ANY ('{text,integer,bigint,boolean,name,numeric,double precision,interval,timestamp with time zone}')
	LOOP
		EXECUTE format('CREATE OR REPLACE FUNCTION traps.fails(%s, %s) RETURNS bool LANGUAGE plpgsql AS $f$ BEGIN RAISE ''a trap: %s''; END $f$', o.l, o.r, replace(o.name, '%', '%%'));
		EXECUTE format('CREATE OPERATOR traps.%s (FUNCTION = traps.fails, LEFTARG = %s, RIGHTARG = %s)', o.name, o.l, o.r);
	END LOOP;
	FOR o IN SELECT p.proname AS name, pg_get_function_identity_arguments(p.oid) AS arguments FROM pg_proc AS p
		WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset
			AND (p.proname ~ 'advisory' OR p.proname ~ '^json_' OR p.proname = ANY ('{now,clock_timestamp,set_config,current_setting,pg_backend_pid,pg_is_in_recovery,
				hashtextextended,textout,concat,concat_ws,strpos,to_json,extract,date_part,ceil,version,quote_literal,pg_current_xact_id_if_assigned}'))
			AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) AS a WHERE a::regtype::text = ANY ('{internal,cstring}'))
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION traps.%I(%s) RETURNS text LANGUAGE plpgsql AS $f$ BEGIN RAISE ''a trap: %s''; END $f$', o.name, o.arguments, o.name);
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END LOOP;
END $do$;
CREATE DOMAIN traps.text AS pg_catalog.text CHECK (pg_catalog.int4in('a trap') IS NULL);
CREATE DOMAIN traps.int4 AS pg_catalog.int4 CHECK (pg_catalog.int4in('a trap') IS NULL);
CREATE DOMAIN traps.int8 AS pg_catalog.int8 CHECK (pg_catalog.int4in('a trap') IS NULL);
CREATE DOMAIN traps.timestamptz AS pg_catalog.timestamptz CHECK (pg_catalog.int4in('a trap') IS NULL)`

// searchPath guards transactions in whose search_path traps come first.
func searchPath(a arena) {
	right := a.rights.Begin(a, "a")
	a.exec(traps)
	trapped := func(level pgx.TxIsoLevel) pgx.Tx {
		a.Helper()
		tx := a.begin(level)
		_, err := tx.Exec(a.Context(), "SET search_path = traps, pg_catalog, public")
		require.NoError(a, err)
		return tx
	}
	for _, query := range []string{"SELECT 1 = 1", "SELECT now() <= now()", "SELECT current_setting('port')", "SELECT 'x'::text"} {
		_, err := trapped(pgx.ReadCommitted).Exec(a.Context(), query, pgx.QueryExecModeSimpleProtocol)
		require.ErrorContains(a, err, "a trap", "the control: %s", query)
	}
	for _, level := range levels {
		tx := trapped(level)
		require.NoError(a, right.Guard(a.Context(), tx))
		require.NoError(a, tx.Rollback(a.Context()))
	}
	ended := a.over(a.rights, right)
	for _, level := range levels {
		tx := trapped(level)
		a.requireRefused(tx, right.Guard(a.Context(), tx), ended...)
	}
}

// lenientCast makes text that is no number a number.
func lenientCast(a arena) {
	right := a.rights.Begin(a, "a")
	ended := a.over(a.rights, right)
	a.exec(`CREATE FUNCTION lenient(text) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'; CREATE CAST (text AS int) WITH FUNCTION lenient(text)`)
	assert.Equal(a, 1, ask[int](a, "SELECT 'x'::text::int"), "the control")
	tx := a.plain()
	a.requireRefused(tx, right.Guard(a.Context(), tx), ended...)
}

// readOnly guards read-only transactions, in which a guard that locks a row says so.
func readOnly(a arena) {
	right := a.rights.Begin(a, "a")
	for _, level := range levels {
		tx := a.begin(level)
		_, err := tx.Exec(a.Context(), "SET TRANSACTION READ ONLY")
		require.NoError(a, err)
		err = right.Guard(a.Context(), tx)
		a.requireReadOnly(err)
		if a.ReadOnly {
			a.requireAborted(tx)
		}
	}
	require.NoError(a, right.Guard(a.Context(), a.plain()), "the control")
}

// limits are the settings that a guard may make stricter, and no others.
var limits = []string{
	"idle_in_transaction_session_timeout", "client_connection_check_interval", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count",
}

// settings requires that a guard changes no setting of the caller's but limits, which it makes stricter until the
// end of the transaction.
func settings(a arena) {
	show := func(tx pgx.Tx) (others []string, limited map[string]int64) {
		a.Helper()
		require.NoError(a, tx.QueryRow(a.Context(), `SELECT array_agg(name || ' = ' || setting ORDER BY name) FROM pg_settings WHERE name <> ALL ($1) AND name NOT LIKE '%.%'`, limits).Scan(&others))
		require.NoError(a, tx.QueryRow(a.Context(), "SELECT json_object_agg(name, setting::bigint) FROM pg_settings WHERE name = ANY ($1)", limits).Scan(&limited))
		return others, limited
	}
	before, limitedBefore := show(a.plain())
	const own = `SET LOCAL lock_timeout = '4711ms'; SET LOCAL statement_timeout = '47s'; SET LOCAL search_path = pg_temp; SET LOCAL role = none`
	for _, c := range []struct {
		set  string
		want func(after map[string]int64)
	}{
		{"", func(after map[string]int64) {
			assert.Positive(a, after["idle_in_transaction_session_timeout"])
			assert.LessOrEqual(a, after["idle_in_transaction_session_timeout"], a.TTL.Milliseconds())
			assert.Positive(a, after["client_connection_check_interval"])
			assert.LessOrEqual(a, after["client_connection_check_interval"], int64(1000))
			assert.LessOrEqual(a, after["tcp_keepalives_idle"], int64(a.TTL/4/time.Second))
			assert.Positive(a, after["tcp_keepalives_idle"])
			assert.LessOrEqual(a, after["tcp_keepalives_interval"], int64(a.TTL/4/time.Second))
			assert.EqualValues(a, 3, after["tcp_keepalives_count"])
		}},
		{"SET LOCAL idle_in_transaction_session_timeout = '2h'; SET LOCAL client_connection_check_interval = '1h'", func(after map[string]int64) {
			assert.LessOrEqual(a, after["idle_in_transaction_session_timeout"], a.TTL.Milliseconds(), "a longer one")
			assert.LessOrEqual(a, after["client_connection_check_interval"], int64(1000), "a longer one")
		}},
		{`SET LOCAL idle_in_transaction_session_timeout = '9999ms'; SET LOCAL client_connection_check_interval = '100ms'; SET LOCAL tcp_keepalives_idle = 1;
			SET LOCAL tcp_keepalives_interval = 1; SET LOCAL tcp_keepalives_count = 2`, func(after map[string]int64) {
			assert.Equal(a, map[string]int64{
				"idle_in_transaction_session_timeout": 9999, "client_connection_check_interval": 100, "tcp_keepalives_idle": 1, "tcp_keepalives_interval": 1,
				"tcp_keepalives_count": 2,
			}, after, "shorter ones are kept")
		}},
	} {
		right, tx := a.rights.Begin(a, "a"), a.plain()
		_, err := tx.Exec(a.Context(), own+"; "+c.set)
		require.NoError(a, err)
		othersBefore, limitsBefore := show(tx)
		require.NoError(a, right.Guard(a.Context(), tx))
		others, after := show(tx)
		assert.Empty(a, changes(othersBefore, others))
		if a.NoLimits {
			assert.Equal(a, limitsBefore, after)
		} else {
			c.want(after)
		}
		require.NoError(a, tx.Commit(a.Context()))
		right.end(a)
		others, after = show(a.plain())
		assert.Empty(a, changes(before, others), "for the transaction only")
		assert.Equal(a, limitedBefore, after, "for the transaction only")
	}
}

// changes returns the lines of after that before has not.
func changes(before, after []string) []string {
	return slices.DeleteFunc(slices.Clone(after), func(line string) bool { return slices.Contains(before, line) })
}

// contexts end before a guard, and between its statements. The right lasts, but the transaction is aborted.
func contexts(a arena) {
	right := a.rights.Begin(a, "a")
	alone := a.locks()
	ended := func(tx pgx.Tx, err, cause error) {
		a.Helper()
		require.ErrorIs(a, err, cause)
		require.NotErrorIs(a, err, a.Ended, "the right lasts")
		require.False(a, pgconn.SafeToRetry(err), "no try can succeed")
		a.requireAborted(tx)
		require.NoError(a, tx.Rollback(context.WithoutCancel(a.Context())))
		assert.Equal(a, alone, a.locks())
	}
	ctx, cancel := context.WithTimeout(a.Context(), 0)
	defer cancel()
	tx := a.plain()
	ended(tx, right.Guard(ctx, tx), context.DeadlineExceeded)

	ctx, cancel = context.WithCancel(a.Context())
	sent := 0
	tx = a.plain()
	ended(tx, right.Guard(ctx, interrupted{tx, &sent, func(int) { cancel() }}), context.Canceled)
	require.NoError(a, right.Guard(a.Context(), a.plain()), "the control")
}

// aborted guards a transaction in which a statement has failed.
func aborted(a arena) {
	right := a.rights.Begin(a, "a")
	alone := a.locks()
	for _, level := range levels {
		tx := a.begin(level)
		_, err := tx.Exec(a.Context(), "SELECT 1/0")
		require.Error(a, err)
		err = right.Guard(a.Context(), tx)
		require.Equal(a, sqlstate.FailedTransaction, sqlstate.Of(err), "%v", err)
		require.NotErrorIs(a, err, a.Ended)
		assert.Equal(a, alone, a.locks())
	}
}
