-- The schema of package lease/postgres. It can be run again, and beside running programs.
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
	uncounted int NOT NULL,            -- earlier leases that expired and that no sweep has counted
	-- settled = the lease has ended and all expired ones are counted: due_at is then when it
	-- ended, and else the earliest time at which a sweep has something to do with the row. A
	-- renewal leaves both, so that it touches no index.
	settled bool NOT NULL DEFAULT false,
	due_at timestamptz NOT NULL DEFAULT '-infinity',
	-- A digest of the last release of the name that had an idempotency key, perhaps of an
	-- earlier lease; '' = there was none.
	last_release text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

CREATE INDEX IF NOT EXISTS locks_due ON pglatch_lease.locks (settled, due_at);

-- Because of this index a change of the token is a change of a key, on whatever path it
-- comes: it takes the row lock of a deletion, which FOR KEY SHARE conflicts with in every
-- isolation level (PostgreSQL manual, Explicit Locking, Row-Level Locks).
CREATE UNIQUE INDEX IF NOT EXISTS locks_token ON pglatch_lease.locks (name, token);

-- live summed up is the number of rows whose lease was not released or found expired by a
-- sweep. A transaction changes a row of its own, so none waits for another.
CREATE TABLE IF NOT EXISTS pglatch_lease.tally (slot int NOT NULL, live bigint NOT NULL) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS tally_slot ON pglatch_lease.tally (slot);
