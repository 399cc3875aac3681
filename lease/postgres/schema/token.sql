
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

-- forget raises the floor to what was deleted, by whomever, in the same transaction.
CREATE OR REPLACE FUNCTION pglatch_lease.forget() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	highest bigint;
	lost bigint;
BEGIN
	SELECT max(g.version), count(*) FILTER (WHERE g.released_at IS NULL AND NOT g.cleared) INTO highest, lost FROM gone AS g;
	UPDATE pglatch_lease.store AS s SET floor = highest WHERE s.floor < highest;
	PERFORM pglatch_lease.count(-lost);
	RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER forget AFTER DELETE ON pglatch_lease.locks REFERENCING OLD TABLE AS gone
	FOR EACH STATEMENT EXECUTE FUNCTION pglatch_lease.forget();

-- forget_all does it before a TRUNCATE.
CREATE OR REPLACE FUNCTION pglatch_lease.forget_all() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	UPDATE pglatch_lease.store AS s SET floor = l.highest FROM (SELECT max(l.version) AS highest FROM pglatch_lease.locks AS l) AS l
		WHERE s.floor < l.highest;
	DELETE FROM pglatch_lease.tally;
	RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER forget_all BEFORE TRUNCATE ON pglatch_lease.locks FOR EACH STATEMENT EXECUTE FUNCTION pglatch_lease.forget_all();

-- count adds to the number of leases that go on. It waits for nobody: where another
-- transaction has the slot's row it makes one more.
CREATE OR REPLACE FUNCTION pglatch_lease.count(p_by bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	s int := pg_catalog.floor(pg_catalog.random() * 1024);
	place tid;
BEGIN
	IF p_by = 0 THEN
		RETURN;
	END IF;
	SELECT t.ctid INTO place FROM pglatch_lease.tally AS t WHERE t.slot = s LIMIT 1 FOR UPDATE SKIP LOCKED;
	IF FOUND THEN
		UPDATE pglatch_lease.tally AS t SET live = t.live + p_by WHERE t.ctid = place;
	ELSE
		INSERT INTO pglatch_lease.tally (slot, live) VALUES (s, p_by);
	END IF;
END $$;

INSERT INTO pglatch_lease.store AS s (schema_version, floor, timeline, system_identifier, relation)
	SELECT 0, 0, pglatch_lease.timeline(), c.system_identifier, 'pglatch_lease.store'::pg_catalog.regclass FROM pg_catalog.pg_control_system() AS c
	ON CONFLICT (one) DO NOTHING;
