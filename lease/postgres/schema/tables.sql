-- The schema of package lease/postgres. It can be run again, and beside running programs,
-- those of earlier versions too.
CREATE SCHEMA IF NOT EXISTS pglatch_lease;

-- One row, of what is common to all names.
CREATE TABLE IF NOT EXISTS pglatch_lease.store (
	one bool PRIMARY KEY DEFAULT true CHECK (one),
	schema_version int NOT NULL,
	floor bigint NOT NULL,             -- no lease of a name that is not in locks had a greater token: era << 40 | n
	timeline bigint NOT NULL,          -- of the server that counts in this era
	system_identifier bigint NOT NULL,
	relation oid NOT NULL              -- of this table itself: a dump that is restored tells the old one
);

-- One row for each name: its current or last lease. Room in the pages, so that a renewal
-- touches no index.
CREATE TABLE IF NOT EXISTS pglatch_lease.locks (
	name text COLLATE "C" PRIMARY KEY,
	holder text NOT NULL,
	id text NOT NULL,
	token bigint NOT NULL,
	version bigint NOT NULL,
	acquired_at timestamptz NOT NULL,
	expires_at timestamptz NOT NULL,
	released_at timestamptz,           -- null while it lasts, and if it expired
	available_at timestamptz NOT NULL, -- when the name can be granted, if nothing is renewed or released
	metadata json NOT NULL,            -- an object of strings
	idempotency_key text NOT NULL,
	lock_delay bigint NOT NULL,        -- microseconds, as the next two
	min_hold bigint NOT NULL,
	max_lifetime bigint NOT NULL,      -- 0 = no bound
	cleared bool NOT NULL,             -- a sweep has found it expired and counted it
	uncounted int NOT NULL             -- earlier leases that expired and that no sweep has counted
) WITH (fillfactor = 50);

-- Since version 2. settled = the lease has ended and all expired ones are counted: due_at
-- is then when it ended, and else the earliest time at which a sweep has something to
-- do with the row. A renewal leaves both, so that it touches no index. Rows of version 1
-- are due at once. ALTER TABLE waits for guarded transactions, so it is left out where it
-- would do nothing.
DO $$
BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = 'pglatch_lease.locks'::pg_catalog.regclass AND a.attname = 'due_at') THEN
		ALTER TABLE pglatch_lease.locks ADD COLUMN settled bool NOT NULL DEFAULT false, ADD COLUMN due_at timestamptz NOT NULL DEFAULT '-infinity';
	END IF;
END $$;
CREATE INDEX IF NOT EXISTS locks_due ON pglatch_lease.locks (settled, due_at);

-- Because of this index a change of the token is a change of a key, on whatever path it
-- comes: it takes the row lock of a deletion, which FOR KEY SHARE conflicts with in every
-- isolation level (PostgreSQL manual, Explicit Locking, Row-Level Locks).
CREATE UNIQUE INDEX IF NOT EXISTS locks_token ON pglatch_lease.locks (name, token);

-- live summed up is the number of rows whose lease was not released or found expired by a
-- sweep. A transaction changes a row of its own, so none waits for another.
DO $$
DECLARE
	g record;
BEGIN
	IF pg_catalog.to_regclass('pglatch_lease.tally') IS NULL THEN
		CREATE TABLE pglatch_lease.tally (slot int NOT NULL, live bigint NOT NULL) WITH (fillfactor = 50);
		CREATE INDEX tally_slot ON pglatch_lease.tally (slot);
		INSERT INTO pglatch_lease.tally SELECT 0, pg_catalog.count(*) FROM pglatch_lease.locks AS l WHERE l.released_at IS NULL AND NOT l.cleared;
		FOR g IN SELECT a.grantee, a.privilege_type FROM pg_catalog.pg_class AS c, pg_catalog.aclexplode(c.relacl) AS a
				WHERE c.oid = 'pglatch_lease.locks'::pg_catalog.regclass AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') LOOP
			EXECUTE pg_catalog.format('GRANT %s ON pglatch_lease.tally TO %s', g.privilege_type,
				CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE g.grantee::pg_catalog.regrole::text END);
		END LOOP;
	END IF;
END $$;
