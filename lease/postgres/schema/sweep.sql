
-- sweep looks after at most p_limit names, those that are due first. It marks rows without the
-- lock of a change of key, because a lease that was renewed in time is among them, and forgets
-- only what no guarded transaction is at.
CREATE OR REPLACE FUNCTION pglatch_lease.sweep(p_retention bigint, p_limit int, p_wait text, OUT touched int, OUT expired int, OUT removed int)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
	SET enable_sort = off SET jit = off AS $$
DECLARE
	retention CONSTANT interval := p_retention * interval '1 microsecond';
	seen timestamptz; -- the mark, because what is counted as expired must stay so
	due text[];
	kept text[];
	cleared int;
BEGIN
	PERFORM pglatch_lease.durable(p_wait);
	PERFORM pglatch_lease.keep(pglatch_lease.now());
	seen := timestamptz 'epoch' + pglatch_lease.mark() * interval '1 microsecond';
	WITH d AS MATERIALIZED (
		SELECT l.name, l.uncounted, l.released_at IS NULL AND l.expires_at <= seen AND NOT l.cleared AS found
		FROM pglatch_lease.locks AS l WHERE NOT l.settled AND l.due_at <= seen ORDER BY l.due_at LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
	)
	SELECT count(*), coalesce(sum(d.uncounted + d.found::int), 0), count(*) FILTER (WHERE d.found), array_agg(d.name) INTO touched, expired, cleared, due FROM d;
	IF touched > 0 THEN
		UPDATE pglatch_lease.locks AS l SET
			uncounted = 0, cleared = l.cleared OR (l.released_at IS NULL AND l.expires_at <= seen),
			version = l.version + (l.released_at IS NULL AND l.expires_at <= seen AND NOT l.cleared)::int,
			settled = l.released_at IS NOT NULL OR l.expires_at <= seen,
			due_at = coalesce(l.released_at, l.expires_at)
			WHERE l.name = ANY (due);
		PERFORM pglatch_lease.count(-cleared);
	END IF;
	WITH d AS MATERIALIZED (
		SELECT l.name, l.available_at <= seen AS gone
		FROM pglatch_lease.locks AS l WHERE l.settled AND l.due_at <= seen - retention ORDER BY l.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED
	)
	SELECT greatest(touched, count(*)), count(*) FILTER (WHERE d.gone), array_agg(d.name) FILTER (WHERE d.gone), array_agg(d.name) FILTER (WHERE NOT d.gone)
		INTO touched, removed, due, kept FROM d;
	IF removed > 0 THEN
		DELETE FROM pglatch_lease.locks AS l WHERE l.name = ANY (due);
	END IF;
	IF kept IS NOT NULL THEN -- by a delay
		UPDATE pglatch_lease.locks AS l SET due_at = l.available_at - retention WHERE l.name = ANY (kept);
	END IF;
END $$;

-- held counts unexpired leases: those that go on, without those that have expired and wait
-- for a sweep. Of these it looks at 20,000 at most, so it is more while more wait.
CREATE OR REPLACE FUNCTION pglatch_lease.held() RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
	SET enable_sort = off SET jit = off AS $$
DECLARE
	seen timestamptz := pglatch_lease.now();
BEGIN
	RETURN greatest((SELECT coalesce(sum(t.live), 0) FROM pglatch_lease.tally AS t WHERE t.slot >= 0) - (
		SELECT count(*) FROM (SELECT l.released_at, l.expires_at FROM pglatch_lease.locks AS l WHERE NOT l.settled AND l.due_at <= seen
			ORDER BY l.due_at LIMIT 20000) AS l WHERE l.released_at IS NULL AND l.expires_at <= seen), 0);
END $$;
