-- What makes version 2 of a later schema.
DROP FUNCTION pglatch_lease.renew(text[], text[], text[], bigint[], bigint[], text, text[]);
CREATE OR REPLACE FUNCTION pglatch_lease.renew(p_names text[], p_holders text[], p_ids text[], p_tokens bigint[], p_ttls bigint[], p_wait text)
RETURNS TABLE (i int, outcome text, seen timestamptz, r pglatch_lease.locks)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	us CONSTANT interval := '1 microsecond';
BEGIN
	PERFORM pglatch_lease.durable(p_wait);
	FOR i IN SELECT u.ord FROM unnest(p_names) WITH ORDINALITY AS u(name, ord) ORDER BY u.name COLLATE "C", u.ord LOOP
		SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_names[i] FOR NO KEY UPDATE;
		seen := pglatch_lease.tick();
		outcome := 'refused';
		IF FOUND AND r.holder = p_holders[i] AND r.id = p_ids[i] AND r.token = p_tokens[i] AND r.released_at IS NULL AND r.expires_at > seen THEN
			outcome := 'done';
			r.expires_at := greatest(r.expires_at, least(seen + p_ttls[i] * us,
				CASE WHEN r.max_lifetime > 0 THEN r.acquired_at + r.max_lifetime * us END));
			UPDATE pglatch_lease.locks AS l SET version = l.version + 1, expires_at = r.expires_at,
				available_at = greatest(r.expires_at + l.lock_delay * us, l.acquired_at + l.min_hold * us)
				WHERE l.name = p_names[i] RETURNING l.* INTO r;
		ELSIF r.released_at IS NULL AND r.expires_at <= seen AND NOT pglatch_lease.keep(r.expires_at) THEN
			outcome := 'busy';
		END IF;
		RETURN NEXT;
	END LOOP;
END $$;

UPDATE pglatch_lease.store SET schema_version = 2;
