-- The schema of package lease/postgres, version 1. It can be run again, and beside
-- running programs.
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

-- One row for each name: its current or last lease. No index but the key's, and room
-- in the pages, so that an update touches no index.
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

-- The timeline comes from the name of a WAL file, because pg_control_checkpoint()
-- tells the old one until the first checkpoint after a promotion.
CREATE OR REPLACE FUNCTION pglatch_lease.timeline() RETURNS bigint LANGUAGE sql VOLATILE AS $$
	SELECT ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::pg_catalog.bit(32)::pg_catalog.int8
$$;

-- durable makes the transaction wait for its commit, and no longer than p_wait for a
-- row. remote_write and remote_apply stay. On a standby it raises an error: what can be
-- read there is old.
CREATE OR REPLACE FUNCTION pglatch_lease.durable(p_wait text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF pg_catalog.pg_is_in_recovery() THEN
		RAISE EXCEPTION 'a standby grants no leases' USING ERRCODE = 'read_only_sql_transaction';
	END IF;
	IF pg_catalog.current_setting('synchronous_commit') IN ('off', 'local') THEN
		PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
	END IF;
	PERFORM pg_catalog.set_config('lock_timeout', p_wait, true);
END $$;

-- floor is the number above which new tokens and versions begin. A standby that is
-- promoted may have missed tokens, but its timeline is higher; a server with another
-- identifier, or a lower timeline after pg_upgrade, is told by that, and so is a dump that
-- was restored on the same server by the table's oid: a new era begins.
-- A snapshot that is older than this call may not see the floor that a sweep raised,
-- so the row is locked then, which fails if it changed since.
CREATE OR REPLACE FUNCTION pglatch_lease.floor() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	s pglatch_lease.store;
	here bigint := pglatch_lease.timeline();
	server bigint := system_identifier FROM pg_catalog.pg_control_system();
	self oid := 'pglatch_lease.store'::pg_catalog.regclass;
BEGIN
	IF pg_catalog.current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
		SELECT t.* INTO STRICT s FROM pglatch_lease.store AS t;
	ELSE
		SELECT t.* INTO STRICT s FROM pglatch_lease.store AS t FOR SHARE;
	END IF;
	IF (s.timeline, s.system_identifier, s.relation) <> (here, server, self) THEN
		UPDATE pglatch_lease.store AS t SET timeline = here, system_identifier = server, relation = self, floor = ((t.floor >> 40)
			+ CASE WHEN t.system_identifier = server AND t.timeline <= here THEN here - t.timeline + (t.relation <> self)::int ELSE 1 END) << 40
			WHERE (t.timeline, t.system_identifier, t.relation) <> (here, server, self);
		SELECT t.* INTO STRICT s FROM pglatch_lease.store AS t;
	END IF;
	RETURN s.floor;
END $$;

-- acquire grants the name ('done': r is the new row), or says what is in the way
-- ('refused': r is that row), or that a guarded write is ('busy'). Durations are in
-- microseconds.
CREATE OR REPLACE FUNCTION pglatch_lease.acquire(p_name text, p_holder text, p_id text, p_ttl bigint, p_key text, p_metadata json,
	p_lock_delay bigint, p_min_hold bigint, p_max_lifetime bigint, p_wait text,
	OUT outcome text, OUT seen timestamptz, OUT r pglatch_lease.locks)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	us CONSTANT interval := '1 microsecond';
	base bigint;
	fresh bool := false;
BEGIN
	PERFORM pglatch_lease.durable(p_wait);
	LOOP
		SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name;
		IF FOUND THEN
			seen := clock_timestamp();
			IF r.available_at > seen THEN -- the common refusal locks and writes nothing
				outcome := 'refused';
				RETURN;
			END IF;
			SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name FOR UPDATE SKIP LOCKED;
			IF NOT FOUND THEN
				BEGIN
					SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name FOR UPDATE;
				EXCEPTION WHEN lock_not_available THEN -- here it is not written to the server's log
					outcome := 'busy';
					RETURN;
				END;
			END IF;
			EXIT WHEN FOUND;
		ELSE
			-- From here on nobody else can make or drop the row, so the floor that is read below is
			-- no less than any token that the name had.
			BEGIN
				INSERT INTO pglatch_lease.locks AS l VALUES (p_name, '', '', 0, 0, '-infinity', '-infinity', '-infinity', '-infinity', '{}', '', 0, 0, 0, false, 0)
					ON CONFLICT DO NOTHING RETURNING l.* INTO r;
			EXCEPTION WHEN lock_not_available THEN
				outcome := 'busy';
				RETURN;
			END;
			EXIT WHEN FOUND;
		END IF;
	END LOOP;
	base := pglatch_lease.floor();
	seen := clock_timestamp();
	IF r.available_at > seen THEN
		outcome := 'refused';
		RETURN;
	END IF;
	outcome := 'done';
	UPDATE pglatch_lease.locks AS l SET
		holder = p_holder, id = p_id, token = greatest(l.token, base) + 1, version = greatest(l.version, base) + 1,
		acquired_at = seen, released_at = NULL, metadata = p_metadata, idempotency_key = p_key,
		expires_at = least(seen + p_ttl * us, CASE WHEN p_max_lifetime > 0 THEN seen + p_max_lifetime * us END),
		available_at = greatest(least(seen + p_ttl * us, CASE WHEN p_max_lifetime > 0 THEN seen + p_max_lifetime * us END) + p_lock_delay * us,
			seen + p_min_hold * us),
		lock_delay = p_lock_delay, min_hold = p_min_hold, max_lifetime = p_max_lifetime, cleared = false,
		uncounted = l.uncounted + (l.released_at IS NULL AND NOT l.cleared)::int
		WHERE l.name = p_name RETURNING l.* INTO r;
END $$;

-- renew prolongs leases, in the order of their names, so that two of these never wait
-- for each other. r is null if nothing is known of the name.
CREATE OR REPLACE FUNCTION pglatch_lease.renew(p_names text[], p_holders text[], p_ids text[], p_tokens bigint[], p_ttls bigint[], p_wait text)
RETURNS TABLE (i int, outcome text, seen timestamptz, r pglatch_lease.locks)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	us CONSTANT interval := '1 microsecond';
BEGIN
	PERFORM pglatch_lease.durable(p_wait);
	FOR i IN SELECT u.ord FROM unnest(p_names) WITH ORDINALITY AS u(name, ord) ORDER BY u.name COLLATE "C", u.ord LOOP
		SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_names[i] FOR NO KEY UPDATE;
		seen := clock_timestamp();
		outcome := 'refused';
		IF FOUND AND r.holder = p_holders[i] AND r.id = p_ids[i] AND r.token = p_tokens[i] AND r.released_at IS NULL AND r.expires_at > seen THEN
			outcome := 'done';
			r.expires_at := greatest(r.expires_at, least(seen + p_ttls[i] * us,
				CASE WHEN r.max_lifetime > 0 THEN r.acquired_at + r.max_lifetime * us END));
			UPDATE pglatch_lease.locks AS l SET version = l.version + 1, expires_at = r.expires_at,
				available_at = greatest(r.expires_at + l.lock_delay * us, l.acquired_at + l.min_hold * us)
				WHERE l.name = p_names[i] RETURNING l.* INTO r;
		END IF;
		RETURN NEXT;
	END LOOP;
END $$;

-- release ends a lease, or says that others are at the row ('busy'). r is null if
-- nothing is known of the name.
CREATE OR REPLACE FUNCTION pglatch_lease.release(p_name text, p_holder text, p_id text, p_token bigint, p_wait text,
	OUT outcome text, OUT seen timestamptz, OUT r pglatch_lease.locks)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
	PERFORM pglatch_lease.durable(p_wait);
	SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name FOR NO KEY UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		BEGIN
			SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name FOR NO KEY UPDATE;
		EXCEPTION WHEN lock_not_available THEN
			outcome := 'busy';
			RETURN;
		END;
	END IF;
	seen := clock_timestamp();
	outcome := 'refused';
	IF FOUND AND r.holder = p_holder AND r.id = p_id AND r.token = p_token AND r.released_at IS NULL AND r.expires_at > seen THEN
		outcome := 'done';
		UPDATE pglatch_lease.locks AS l SET version = l.version + 1, released_at = seen, available_at = l.acquired_at + l.min_hold * interval '1 microsecond'
			WHERE l.name = p_name RETURNING l.* INTO r;
	END IF;
END $$;

-- batch does what acquire and release do, for several names in one transaction and in
-- the order that is given: by name, so that two of these never wait for each other. A
-- token of 0, which no lease has, is an acquire. What waits waits for all, so p_wait should
-- be short.
CREATE OR REPLACE FUNCTION pglatch_lease.batch(p_names text[], p_holders text[], p_ids text[], p_tokens bigint[],
	p_ttls bigint[], p_keys text[], p_metadata text[], p_lock_delays bigint[], p_min_holds bigint[], p_max_lifetimes bigint[], p_wait text)
RETURNS TABLE (i int, outcome text, seen timestamptz, r pglatch_lease.locks)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	q record;
	a record;
BEGIN
	FOR q IN SELECT * FROM unnest(p_names, p_holders, p_ids, p_tokens, p_ttls, p_keys, p_metadata, p_lock_delays, p_min_holds, p_max_lifetimes)
			WITH ORDINALITY AS u(name, holder, id, token, ttl, key, metadata, lock_delay, min_hold, max_lifetime, ord) ORDER BY u.ord LOOP
		IF q.token = 0 THEN
			a := pglatch_lease.acquire(q.name, q.holder, q.id, q.ttl, q.key, q.metadata::json, q.lock_delay, q.min_hold, q.max_lifetime, p_wait);
		ELSE
			a := pglatch_lease.release(q.name, q.holder, q.id, q.token, p_wait);
		END IF;
		i := q.ord;
		outcome := a.outcome;
		seen := a.seen;
		r := a.r;
		RETURN NEXT;
	END LOOP;
END $$;

-- guard raises an error unless the claim is current. Its row lock lets renewals and a
-- release pass, and makes acquire wait until the transaction has ended. The session
-- may then be idle for no longer than the lease has left, or a second.
CREATE OR REPLACE FUNCTION pglatch_lease.guard(p_name text, p_holder text, p_id text, p_token bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	r pglatch_lease.locks;
	seen timestamptz;
	idle interval := current_setting('idle_in_transaction_session_timeout')::interval;
	reason text;
	bound interval;
BEGIN
	SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name FOR KEY SHARE;
	seen := clock_timestamp();
	reason := CASE
		WHEN NOT FOUND THEN 'unknown'
		WHEN r.holder <> p_holder OR r.id <> p_id OR r.token <> p_token THEN concat_ws(' ', 'stale',
			CASE WHEN r.holder <> p_holder THEN 'holder' END, CASE WHEN r.id <> p_id THEN 'id' END, CASE WHEN r.token <> p_token THEN 'token' END)
		WHEN r.released_at IS NOT NULL THEN 'released'
		WHEN r.expires_at <= seen THEN 'expired ' || (extract(epoch FROM r.expires_at) * 1000000)::bigint
	END;
	IF reason IS NOT NULL THEN
		RAISE EXCEPTION 'pglatch lease guard refused: %.', reason USING ERRCODE = 'PGL01';
	END IF;
	bound := greatest(r.expires_at - seen, interval '1 second');
	IF idle = interval '0' OR idle > bound THEN
		PERFORM set_config('idle_in_transaction_session_timeout', ceil(extract(epoch FROM bound) * 1000)::bigint || 'ms', true);
	END IF;
END $$;

-- sweep looks after at most p_limit names. What it forgets has a version at or below
-- the floor in the same transaction.
CREATE OR REPLACE FUNCTION pglatch_lease.sweep(p_retention bigint, p_limit int, p_wait text, OUT touched int, OUT expired int, OUT removed int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	seen CONSTANT timestamptz := clock_timestamp();
	long_ago CONSTANT timestamptz := seen - p_retention * interval '1 microsecond';
	highest bigint;
BEGIN
	PERFORM pglatch_lease.durable(p_wait);
	WITH due AS MATERIALIZED (
		SELECT l.name, coalesce(l.released_at, l.expires_at) <= long_ago AND l.available_at <= seen AS old,
			(l.released_at IS NULL AND l.expires_at <= seen AND NOT l.cleared) AS found, l.uncounted
		FROM pglatch_lease.locks AS l
		WHERE (l.released_at IS NOT NULL OR l.expires_at <= seen) AND coalesce(l.released_at, l.expires_at) <= long_ago AND l.available_at <= seen
			OR l.released_at IS NULL AND l.expires_at <= seen AND NOT l.cleared
			OR l.uncounted > 0
		LIMIT p_limit FOR UPDATE SKIP LOCKED
	), marked AS (
		UPDATE pglatch_lease.locks AS l SET uncounted = 0, cleared = l.cleared OR due.found, version = l.version + due.found::int
		FROM due WHERE l.name = due.name AND NOT due.old
	), gone AS (
		DELETE FROM pglatch_lease.locks AS l USING due WHERE l.name = due.name AND due.old RETURNING l.version
	)
	SELECT count(*), coalesce(sum(due.uncounted + due.found::int), 0), (SELECT count(*) FROM gone), (SELECT max(gone.version) FROM gone)
		INTO touched, expired, removed, highest FROM due;
	IF removed > 0 THEN
		UPDATE pglatch_lease.store AS s SET floor = highest WHERE s.floor < highest;
	END IF;
END $$;

-- get is what is stored of one name.
CREATE OR REPLACE FUNCTION pglatch_lease.get(p_name text) RETURNS TABLE (outcome text, seen timestamptz, r pglatch_lease.locks)
LANGUAGE sql BEGIN ATOMIC
	SELECT 'done', clock_timestamp(), l FROM pglatch_lease.locks AS l WHERE l.name = p_name;
END;

-- list is what is stored of the next names after one, from another on.
CREATE OR REPLACE FUNCTION pglatch_lease.list(p_after text, p_from text, p_limit bigint)
RETURNS TABLE (outcome text, seen timestamptz, r pglatch_lease.locks)
LANGUAGE sql BEGIN ATOMIC
	SELECT 'done', clock_timestamp(), l FROM pglatch_lease.locks AS l WHERE l.name > p_after AND l.name >= p_from ORDER BY l.name LIMIT p_limit;
END;

-- held counts unexpired leases.
CREATE OR REPLACE FUNCTION pglatch_lease.held() RETURNS bigint
LANGUAGE sql BEGIN ATOMIC
	SELECT count(*) FROM pglatch_lease.locks AS l WHERE l.released_at IS NULL AND l.expires_at > clock_timestamp();
END;

INSERT INTO pglatch_lease.store AS s (schema_version, floor, timeline, system_identifier, relation)
	SELECT 1, 0, pglatch_lease.timeline(), c.system_identifier, 'pglatch_lease.store'::pg_catalog.regclass FROM pg_catalog.pg_control_system() AS c
	ON CONFLICT (one) DO UPDATE SET schema_version = excluded.schema_version WHERE s.schema_version < excluded.schema_version;
