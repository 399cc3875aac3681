//go:build integration

package seams

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	leaderpg "github.com/pglatch/pglatch/leader/postgres"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	leasepg "github.com/pglatch/pglatch/lease/postgres"
	oncepg "github.com/pglatch/pglatch/once/postgres"
	"github.com/pglatch/pglatch/turns"
)

// A site is where an entry is used.
type site struct {
	dsn   string    // what the entry gets
	admin string    // the superuser's, of the database where its locks and sessions are
	judge *pgx.Conn // to that

	hold time.Duration // how long a key that the entry waits for is held at least

	each func(t *testing.T) string // returns the dsn of one entry; nil = dsn
}

// A surrounding is what stands between an entry and an ordinary database.
type surrounding struct {
	name string
	make func(t *testing.T, server *pgserver.Server) site
	// Except for these entries, all work.
	except map[string]outcome
	// These entries have a test of their own.
	elsewhere []string
}

// start starts a server.
func start(t *testing.T) *pgserver.Server {
	t.Helper()
	return pgtest.StartServer(t, pgserver.Options{})
}

// database makes a database with the tables of all features, of their present versions.
func database(t *testing.T, server *pgserver.Server) site {
	t.Helper()
	dsn, err := server.CreateDatabase(t.Context())
	require.NoError(t, err)
	s := site{dsn: dsn, admin: dsn, judge: admin(t, dsn)}
	s.exec(t, schemas)
	return s
}

var schemas = leasepg.Schema() + ";\n" + leaderpg.Schema("") + ";\n" + oncepg.Schema("") + ";\n" + shardspg.Schema("") + ";\n" + turns.Schema() +
	"SELECT pglatch_turns.open_mailbox('seams', 'agent=1', 100000, 1000, '0', false, '1 day')"

func admin(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (s site) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := s.judge.Exec(t.Context(), sql)
	require.NoError(t, err, "%.200s", sql)
}

// with is the site's database by another address or user.
func (s site) with(t *testing.T, change func(u *url.URL)) site {
	t.Helper()
	u, err := url.Parse(s.dsn)
	require.NoError(t, err)
	change(u)
	s.dsn = u.String()
	return s
}

func (s site) as(t *testing.T, role string) site {
	t.Helper()
	return s.with(t, func(u *url.URL) { u.User = url.User(role) })
}

func direct(t *testing.T, server *pgserver.Server) site {
	t.Helper()
	return database(t, server)
}

func pooler(settings ...string) func(*testing.T, *pgserver.Server) site {
	return func(t *testing.T, server *pgserver.Server) site {
		t.Helper()
		s := database(t, server)
		s.each = func(t *testing.T) string { // PgBouncer 1.18 ends now and then when a command does
			t.Helper()
			front, err := url.Parse(service.PgBouncer(t, server, settings...))
			require.NoError(t, err)
			return s.with(t, func(u *url.URL) { u.Host = front.Host }).dsn
		}
		return s
	}
}

// lateness is the delay of a slow server in each direction.
const lateness = 100 * time.Millisecond

// slow is a server that answers everything, and late.
func slow(t *testing.T, server *pgserver.Server) site {
	t.Helper()
	u, err := url.Parse(server.DSN(""))
	require.NoError(t, err)
	proxy, err := faultproxy.New(t.Context(), u.Host)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	proxy.Delay(lateness)
	s := database(t, server)
	s.dsn, err = proxy.URL(s.dsn)
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, admin(t, s.dsn).Ping(t.Context()))
	require.Greater(t, time.Since(began), 2*lateness, "the control")
	return s
}

func standby(t *testing.T, _ *pgserver.Server) site {
	t.Helper()
	primary := start(t)
	database := database(t, primary)
	server, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	front, err := url.Parse(server.DSN(""))
	require.NoError(t, err)
	s := database.with(t, func(u *url.URL) { u.Host = front.Host })
	s.admin, s.judge = s.dsn, admin(t, s.dsn)
	return s
}

// promoted is a standby that became the primary.
func promoted(t *testing.T, server *pgserver.Server) site {
	t.Helper()
	s := standby(t, server)
	var done bool
	require.NoError(t, s.judge.QueryRow(t.Context(), "SELECT pg_promote()").Scan(&done))
	require.True(t, done)
	return s
}

// role is a user who owns the tables, and for whom the statements are run then.
func role(name string, hostile ...string) func(*testing.T, *pgserver.Server) site {
	return func(t *testing.T, server *pgserver.Server) site {
		t.Helper()
		dsn, err := server.CreateDatabase(t.Context())
		require.NoError(t, err)
		s := site{dsn: dsn, admin: dsn, judge: admin(t, dsn)}
		s.exec(t, "CREATE ROLE "+name+" LOGIN; GRANT ALL ON SCHEMA public TO "+name+`; DO $$ BEGIN
			EXECUTE format('GRANT ALL ON DATABASE %I TO `+name+`', current_database()); END $$; SET ROLE `+name)
		s.exec(t, schemas)
		s.exec(t, "RESET ROLE")
		for _, sql := range hostile {
			s.exec(t, sql)
		}
		return s.as(t, name)
	}
}

// hurry is longer than the statements of a hurried role may take.
const hurry = 3500 * time.Millisecond

// lasting makes sites where keys are held for a time at least.
func lasting(hold time.Duration, of func(*testing.T, *pgserver.Server) site) func(*testing.T, *pgserver.Server) site {
	return func(t *testing.T, server *pgserver.Server) site {
		t.Helper()
		s := of(t, server)
		s.hold = hold
		return s
	}
}

// stranger is a role that nobody granted anything.
func stranger(t *testing.T, server *pgserver.Server) site {
	t.Helper()
	s := database(t, server)
	s.exec(t, "REVOKE ALL ON SCHEMA public FROM PUBLIC; CREATE ROLE stranger LOGIN")
	return s.as(t, "stranger")
}

// unmade is a database without tables, for a role that may make none.
func unmade(t *testing.T, server *pgserver.Server) site {
	t.Helper()
	dsn, err := server.CreateDatabase(t.Context())
	require.NoError(t, err)
	s := site{dsn: dsn, admin: dsn, judge: admin(t, dsn)}
	s.exec(t, "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE unmade LOGIN")
	return s.as(t, "unmade")
}

// older has tables that lack what this version needs.
func older(t *testing.T, server *pgserver.Server) site {
	t.Helper()
	dsn, err := server.CreateDatabase(t.Context())
	require.NoError(t, err)
	s := site{dsn: dsn, admin: dsn, judge: admin(t, dsn)}
	s.exec(t, schemas+"; UPDATE pglatch_lease.store SET schema_version = 0; ALTER TABLE pglatch_election DROP COLUMN written; "+
		"ALTER TABLE pglatch_once DROP COLUMN id; ALTER TABLE pglatch_shard_member DROP COLUMN refuses")
	return s
}

// shadows makes a schema with functions and tables of the names that ours have, each of which fails.
const shadows = `
CREATE SCHEMA shadows AUTHORIZATION shadowed;
SET ROLE shadowed;
DO $do$ DECLARE f record; BEGIN
	FOR f IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments FROM pg_proc p
		WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.proretset = false
		AND (p.proname ~ '^(pg_advisory|pg_try_advisory)' OR p.proname IN ('now', 'clock_timestamp', 'statement_timestamp', 'set_config', 'current_setting',
			'pg_backend_pid', 'pg_is_in_recovery', 'pg_notify', 'to_regclass', 'current_database', 'pg_blocking_pids', 'quote_ident', 'format', 'md5', 'left', 'sha256',
			'pg_current_xact_id', 'txid_current', 'pg_postmaster_start_time', 'has_table_privilege', 'greatest', 'abs'))
		AND NOT EXISTS (SELECT FROM unnest(p.proargtypes) a WHERE a::regtype::text IN ('"any"', 'anyelement', 'anyarray', 'internal', 'cstring'))
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION shadows.%I(%s) RETURNS text LANGUAGE plpgsql AS $f$ BEGIN RAISE ''the shadow %s was called''; END $f$', f.proname, f.arguments, f.proname);
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
	END LOOP;
END $do$;
CREATE VIEW shadows.pg_locks AS SELECT 1 AS shadow;
CREATE VIEW shadows.pg_stat_activity AS SELECT 1 AS shadow;
CREATE VIEW shadows.pg_database AS SELECT 1 AS shadow;
CREATE VIEW shadows.pg_prepared_xacts AS SELECT 1 AS shadow;
CREATE VIEW shadows.pg_class AS SELECT 1 AS shadow;
CREATE VIEW shadows.pg_settings AS SELECT 1 AS shadow;
RESET ROLE;
ALTER ROLE shadowed SET search_path = shadows, pg_catalog, public`

// shadowed is a role for whom the names that ours have are others.
func shadowed(t *testing.T, server *pgserver.Server) site {
	t.Helper()
	s := role("shadowed", shadows)(t, server)
	conn := admin(t, s.dsn)
	for _, call := range []string{"pg_try_advisory_lock(1, 2)", "pg_advisory_unlock(1)", "pg_advisory_xact_lock(1::bigint)", "now()", "pg_backend_pid()", "current_setting('port')"} {
		_, err := conn.Exec(t.Context(), "SELECT "+call)
		require.ErrorContains(t, err, "the shadow", "the control: a statement that is not on its guard")
	}
	return s
}

// left is what locks, transactions and prepared transactions there are in the database.
func (s site) left(t *testing.T) (what string) {
	t.Helper()
	require.NoError(t, s.judge.QueryRow(t.Context(), `SELECT concat_ws('; ',
		(SELECT string_agg(format('%s lock %s/%s of %s', mode, classid, objid, pid), ', ') FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())),
		(SELECT string_agg(format('%s %s in %s', application_name, pid, state), ', ') FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE '%transaction%'),
		(SELECT string_agg(gid, ', ') FROM pg_prepared_xacts WHERE database = current_database()))`).Scan(&what))
	return what
}

// requireNothingLeft waits until the entry holds no lock, and no session of it is in a transaction.
func (s site) requireNothingLeft(t *testing.T) {
	t.Helper()
	var what string
	await.Until(t, patience, func() bool { what = s.left(t); return what == "" }, func() string { return "left behind: " + what })
}
