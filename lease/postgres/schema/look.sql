
-- told returns what can be told of a row that was read: of a lease that seems to have expired,
-- that it has, if it certainly has for ever, and else its last moment.
CREATE OR REPLACE FUNCTION pglatch_lease.told(INOUT r pglatch_lease.locks, OUT seen timestamptz) LANGUAGE plpgsql AS $$
DECLARE
	last pglatch_lease.locks;
BEGIN
	seen := pglatch_lease.now();
	IF r.released_at IS NOT NULL OR r.cleared OR r.expires_at > seen THEN
		RETURN;
	ELSIF current_setting('transaction_read_only') = 'on' OR NOT has_table_privilege('pglatch_lease.locks', 'UPDATE') THEN
		RETURN; -- who only reads can keep nothing
	END IF;
	IF pglatch_lease.keep(r.expires_at) THEN
		-- Who renewed it in time and has not committed has the row.
		SELECT l.* INTO last FROM pglatch_lease.locks AS l WHERE l.name = r.name FOR SHARE SKIP LOCKED;
		IF FOUND THEN
			r := last;
			RETURN;
		END IF;
	END IF;
	seen := r.expires_at - interval '1 microsecond';
END $$;

-- get is what is stored of one name.
CREATE OR REPLACE FUNCTION pglatch_lease.get(p_name text) RETURNS TABLE (outcome text, seen timestamptz, r pglatch_lease.locks)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	a record;
BEGIN
	SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name;
	IF FOUND THEN
		a := pglatch_lease.told(r);
		outcome := 'done';
		seen := a.seen;
		r := a.r;
		RETURN NEXT;
	END IF;
END $$;

-- list is what is stored of the next names after one, from another on.
CREATE OR REPLACE FUNCTION pglatch_lease.list(p_after text, p_from text, p_limit bigint)
RETURNS TABLE (outcome text, seen timestamptz, r pglatch_lease.locks)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	a record;
BEGIN
	outcome := 'done';
	FOR r IN SELECT l.* FROM pglatch_lease.locks AS l WHERE l.name > p_after AND l.name >= p_from ORDER BY l.name LIMIT p_limit LOOP
		a := pglatch_lease.told(r);
		seen := a.seen;
		r := a.r;
		RETURN NEXT;
	END LOOP;
END $$;
