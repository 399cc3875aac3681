package interop_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/namespace/interop"
)

// A statement is what a tool sends to lock. Where the tool computes a number, the server computes it
// here, so that nothing is taken from package interop.
type statement struct {
	key func(database string) namespace.Key
	sql string
	tx  bool // the lock is the transaction's
}

// always is a key that does not depend on the database.
func always(key namespace.Key) func(string) namespace.Key {
	return func(string) namespace.Key { return key }
}

var statements = map[string]statement{
	"Rails: migrations":  {interop.Rails, "SELECT pg_try_advisory_lock(2053462845 * crc32(current_database()))", false},
	"sqlx: migrations":   {interop.SQLx, "SELECT pg_advisory_lock(1026731422 * crc32(current_database()))", false}, // 0x3d32ad9e
	"Prisma: migrations": {always(interop.Prisma()), "SELECT pg_advisory_lock(72707369)", false},
	"Flyway: migrations": {
		always(interop.Flyway("public", "flyway_schema_history")),
		`SELECT pg_try_advisory_xact_lock(77431708279161 + java_hash('"public"."flyway_schema_history"'))`, true,
	},
	"Flyway: migrations, not transactional": {
		always(interop.Flyway("app", "versions")),
		`SELECT pg_try_advisory_lock(77431708279161 + java_hash('"app"."versions"'))`, false,
	},
	"node-pg-migrate":     {always(interop.NodePgMigrate()), `SELECT pg_try_advisory_lock(7241865325823964) AS "lockObtained"`, false},
	"postgres-migrations": {always(interop.PostgresMigrations()), "SELECT pg_try_advisory_lock(-8525285245963000605);", false},
	"Sqitch":              {always(interop.Sqitch()), "SELECT pg_try_advisory_lock(75474063)", false},
	"Sqitch, while it waits": {
		always(interop.Sqitch()), "SELECT pg_advisory_lock(75474063)", false,
	},
	"pg-boss: schema": {
		func(database string) namespace.Key { return interop.PgBoss(database, "pgboss") },
		`SELECT pg_advisory_xact_lock(
      ('x' || encode(sha224((current_database() || '.pgboss.pgboss')::bytea), 'hex'))::bit(64)::bigint
  )`, true,
	},
	"with_advisory_lock": {
		always(interop.WithAdvisoryLock("import", 0)),
		"SELECT pg_try_advisory_lock((crc32('import') & 2147483647)::int,0) AS t1 /* import */", false,
	},
	"good_job": {
		always(interop.GoodJob("good_jobs-9c2f3a1e-0000-4000-8000-000000000001")),
		"SELECT pg_try_advisory_lock(('x' || substr(md5('good_jobs' || '-' || '9c2f3a1e-0000-4000-8000-000000000001'::text), 1, 16))::bit(64)::bigint) AS locked", false,
	},
	"que":                        {always(namespace.SingleRaw(42)), "SELECT pg_try_advisory_lock(42) AS taken", false},
	"Symfony Lock: save":         {always(interop.Symfony("orders")), "SELECT pg_try_advisory_lock(crc32('orders'))", false},
	"Symfony Lock: waitAndSave":  {always(interop.Symfony("orders")), "SELECT pg_advisory_lock(crc32('orders'))", false},
	"django-pglock: text":        {always(interop.DjangoPglock("import")), "SELECT pg_advisory_lock((SELECT bit_or(get_byte(sha256('import'), i)::bigint << (8 * i)) FROM generate_series(0, 7) AS i))", false},
	"django-pglock: timeout=0":   {always(namespace.SingleRaw(42)), "SELECT pg_try_advisory_lock(42)", false},
	"DistributedLock: ASCII":     {always(interop.DistributedLock("Hello")), "SELECT pg_advisory_lock(-1852348723, -268435457)", false},
	"DistributedLock: hash":      {always(interop.DistributedLock("tencharsss")), "SELECT pg_advisory_lock(-6799900960852903990)", false},
	"DistributedLock: long":      {always(namespace.SingleRaw(-7)), "SELECT pg_advisory_lock(-7)", false},
	"DistributedLock: int, int":  {always(namespace.Pair(1, -7)), "SELECT pg_advisory_lock(1, -7)", false},
	"hand-written SQL: bigint":   {always(namespace.SingleRaw(12345)), "SELECT pg_advisory_lock(12345)", false},
	"hand-written SQL: two ints": {always(namespace.Pair(1, 42)), "SELECT pg_advisory_lock(1, 42)", false},
}

func TestTheStatementsOfOtherToolsAndPglatchExcludeEachOther(t *testing.T) {
	t.Parallel()
	for name, s := range statements {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.peer().require(t)
		})
	}
}

// functions compute in the database what the tools compute: zlib's crc32, and Java's String.hashCode of ASCII.
const functions = `
CREATE OR REPLACE FUNCTION crc32(what text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	crc bigint := 4294967295;
	bytes bytea := convert_to(what, 'UTF8');
BEGIN
	FOR i IN 0 .. octet_length(bytes) - 1 LOOP
		crc := crc # get_byte(bytes, i);
		FOR bit IN 1 .. 8 LOOP
			crc := (crc >> 1) # (3988292384 * (crc & 1));
		END LOOP;
	END LOOP;
	RETURN crc # 4294967295;
END $$;
CREATE OR REPLACE FUNCTION java_hash(what text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	hash bigint := 0;
BEGIN
	FOR i IN 1 .. length(what) LOOP
		hash := (31 * hash + ascii(substr(what, i, 1))) & 4294967295;
	END LOOP;
	RETURN hash - (hash >> 31) * 4294967296;
END $$;`

// lock sends the statement on a new connection, which has the lock until it is closed.
func (s statement) lock(ctx context.Context, dsn string) (conn *pgx.Conn, refused bool, err error) {
	conn, err = pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, false, err
	}
	if _, err := conn.Exec(ctx, functions); err != nil {
		return conn, false, err
	}
	if s.tx {
		if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
			return conn, false, err
		}
	}
	if !s.tries() {
		_, err := conn.Exec(ctx, s.sql)
		return conn, false, err
	}
	var got bool
	err = conn.QueryRow(ctx, s.sql).Scan(&got)
	return conn, err == nil && !got, err
}

func (s statement) tries() bool { return strings.Contains(s.sql, "pg_try_") }

func (s statement) peer() peer {
	return peer{
		key:   s.key,
		waits: !s.tries(),
		hold: func(t *testing.T, dsn string) (release func()) {
			t.Helper()
			conn, refused, err := s.lock(t.Context(), dsn)
			require.NoError(t, err)
			require.False(t, refused)
			return func() { assert.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }
		},
		try: func(ctx context.Context, dsn string) (refused bool, err error) {
			conn, refused, err := s.lock(ctx, dsn)
			if conn != nil {
				_ = conn.Close(context.WithoutCancel(ctx))
			}
			return refused, err
		},
	}
}
