
-- take grants the name ('done': r is the new row), or says what is in the way
-- ('refused': r is that row), or that a guarded write is ('busy'). Durations are in
-- microseconds. gained is by how many more leases go on then.
CREATE OR REPLACE FUNCTION pglatch_lease.take(p_name text, p_holder text, p_id text, p_ttl bigint, p_key text, p_metadata json,
	p_lock_delay bigint, p_min_hold bigint, p_max_lifetime bigint,
	OUT outcome text, OUT seen timestamptz, OUT r pglatch_lease.locks, OUT gained int)
LANGUAGE plpgsql AS $$
DECLARE
	us CONSTANT interval := '1 microsecond';
	base bigint;
	before pglatch_lease.locks;
	alone bool := false;
BEGIN
	gained := 0;
	LOOP
		SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name;
		IF FOUND THEN
			seen := pglatch_lease.tick();
			IF r.available_at > seen THEN -- the common refusal locks nothing
				outcome := 'refused';
				IF r.holder = p_holder AND r.idempotency_key = p_key AND p_key <> '' THEN
					-- Who asks again is told of its lease: what is written to WAL makes the transaction wait for the synchronous
					-- standby, which may not have the first one yet, whose wait was cancelled with its request.
					PERFORM pg_catalog.pg_logical_emit_message(true, 'pglatch', '');
				END IF;
				RETURN;
			END IF;
		END IF;
		-- No guard of the name is in flight, or comes, until this transaction ends: see guard.
		IF NOT alone AND NOT pg_try_advisory_xact_lock(hashtextextended(p_name, 8099561637531575563)) THEN
			BEGIN
				PERFORM pg_advisory_xact_lock(hashtextextended(p_name, 8099561637531575563));
			EXCEPTION WHEN lock_not_available THEN -- here it is not written to the server's log
				outcome := 'busy';
				RETURN;
			END;
			alone := true;
			CONTINUE; -- the row may have changed
		END IF;
		alone := true;
		IF FOUND THEN
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
				INSERT INTO pglatch_lease.locks AS l (name, holder, id, token, version, acquired_at, expires_at, released_at, available_at, metadata,
						idempotency_key, lock_delay, min_hold, max_lifetime, cleared, uncounted)
					VALUES (p_name, '', '', 0, 0, '-infinity', '-infinity', '-infinity', '-infinity', '{}', '', 0, 0, 0, false, 0)
					ON CONFLICT DO NOTHING RETURNING l.* INTO r;
			EXCEPTION WHEN lock_not_available THEN
				outcome := 'busy';
				RETURN;
			END;
			EXIT WHEN FOUND;
		END IF;
	END LOOP;
	base := pglatch_lease.floor();
	seen := pglatch_lease.tick();
	IF r.available_at > seen THEN
		outcome := 'refused';
		RETURN;
	END IF;
	outcome := 'done';
	before := r;
	gained := (before.released_at IS NOT NULL OR before.cleared)::int;
	r.uncounted := before.uncounted + 1 - gained;
	r.expires_at := least(seen + p_ttl * us, CASE WHEN p_max_lifetime > 0 THEN seen + p_max_lifetime * us END);
	UPDATE pglatch_lease.locks AS l SET
		holder = p_holder, id = p_id, token = greatest(l.token, base) + 1, version = greatest(l.version, base) + 1,
		acquired_at = seen, released_at = NULL, metadata = p_metadata, idempotency_key = p_key, expires_at = r.expires_at,
		available_at = greatest(r.expires_at + p_lock_delay * us, seen + p_min_hold * us),
		lock_delay = p_lock_delay, min_hold = p_min_hold, max_lifetime = p_max_lifetime, cleared = false, uncounted = r.uncounted,
		settled = false, due_at = CASE WHEN r.uncounted > 0 THEN '-infinity' ELSE r.expires_at END
		WHERE l.name = p_name RETURNING l.* INTO r;
END $$;

-- acquire is take of one name.
CREATE OR REPLACE FUNCTION pglatch_lease.acquire(p_name text, p_holder text, p_id text, p_ttl bigint, p_key text, p_metadata json,
	p_lock_delay bigint, p_min_hold bigint, p_max_lifetime bigint, p_wait text,
	OUT outcome text, OUT seen timestamptz, OUT r pglatch_lease.locks)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	a record;
BEGIN
	PERFORM pglatch_lease.durable(p_wait);
	a := pglatch_lease.take(p_name, p_holder, p_id, p_ttl, p_key, p_metadata, p_lock_delay, p_min_hold, p_max_lifetime);
	PERFORM pglatch_lease.count(a.gained);
	outcome := a.outcome;
	seen := a.seen;
	r := a.r;
END $$;

-- renew prolongs leases, in the order of their names, so that two of these never wait
-- for each other. r is null if nothing is known of the name. 'busy' is an expiry that cannot
-- be told yet, or, if r is null, of several renewals one whose row another transaction has
-- locked: the others do not wait for it. Metadata that is null stays as it is.
CREATE OR REPLACE FUNCTION pglatch_lease.renew(p_names text[], p_holders text[], p_ids text[], p_tokens bigint[], p_ttls bigint[], p_wait text,
	p_metadata text[])
RETURNS TABLE (i int, outcome text, seen timestamptz, r pglatch_lease.locks)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	us CONSTANT interval := '1 microsecond';
BEGIN
	PERFORM pglatch_lease.durable(p_wait);
	FOR i IN SELECT u.ord FROM unnest(p_names) WITH ORDINALITY AS u(name, ord) ORDER BY u.name COLLATE "C", u.ord LOOP
		IF cardinality(p_names) = 1 THEN
			SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_names[i] FOR NO KEY UPDATE;
		ELSE
			SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_names[i] FOR NO KEY UPDATE SKIP LOCKED;
			IF NOT FOUND AND EXISTS (SELECT FROM pglatch_lease.locks AS l WHERE l.name = p_names[i]) THEN
				outcome := 'busy';
				seen := pglatch_lease.tick();
				RETURN NEXT;
				CONTINUE;
			END IF;
		END IF;
		seen := pglatch_lease.tick();
		outcome := 'refused';
		IF FOUND AND r.holder = p_holders[i] AND r.id = p_ids[i] AND r.token = p_tokens[i] AND r.released_at IS NULL AND r.expires_at > seen THEN
			outcome := 'done';
			r.expires_at := greatest(r.expires_at, least(seen + p_ttls[i] * us,
				CASE WHEN r.max_lifetime > 0 THEN r.acquired_at + r.max_lifetime * us END));
			UPDATE pglatch_lease.locks AS l SET version = l.version + 1, expires_at = r.expires_at, metadata = coalesce(p_metadata[i]::json, l.metadata),
				available_at = greatest(r.expires_at + l.lock_delay * us, l.acquired_at + l.min_hold * us)
				WHERE l.name = p_names[i] RETURNING l.* INTO r;
		ELSIF r.released_at IS NULL AND r.expires_at <= seen AND NOT pglatch_lease.keep(r.expires_at) THEN
			outcome := 'busy';
		END IF;
		RETURN NEXT;
	END LOOP;
END $$;

-- give ends a lease, or says that others are at the row ('busy'). r is null if nothing is
-- known of the name. gained is as take's. p_release is the digest to keep; '' = the last one
-- stays.
CREATE OR REPLACE FUNCTION pglatch_lease.give(p_name text, p_holder text, p_id text, p_token bigint, p_release text,
	OUT outcome text, OUT seen timestamptz, OUT r pglatch_lease.locks, OUT gained int)
LANGUAGE plpgsql AS $$
BEGIN
	gained := 0;
	SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name FOR NO KEY UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		BEGIN
			SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name FOR NO KEY UPDATE;
		EXCEPTION WHEN lock_not_available THEN
			outcome := 'busy';
			RETURN;
		END;
	END IF;
	seen := pglatch_lease.tick();
	outcome := 'refused';
	IF FOUND AND r.holder = p_holder AND r.id = p_id AND r.token = p_token AND r.released_at IS NULL AND r.expires_at > seen THEN
		outcome := 'done';
		gained := -1;
		UPDATE pglatch_lease.locks AS l SET version = l.version + 1, released_at = seen, available_at = l.acquired_at + l.min_hold * interval '1 microsecond',
			settled = l.uncounted = 0, due_at = CASE WHEN l.uncounted = 0 THEN seen ELSE '-infinity' END,
			last_release = CASE WHEN p_release = '' THEN l.last_release ELSE p_release END
			WHERE l.name = p_name RETURNING l.* INTO r;
	ELSIF r.released_at IS NULL AND r.expires_at <= seen AND NOT pglatch_lease.keep(r.expires_at) THEN
		outcome := 'busy'; -- an expiry that cannot be told yet
	END IF;
END $$;

-- release is give of one name.
CREATE OR REPLACE FUNCTION pglatch_lease.release(p_name text, p_holder text, p_id text, p_token bigint, p_release text, p_wait text,
	OUT outcome text, OUT seen timestamptz, OUT r pglatch_lease.locks)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	a record;
BEGIN
	PERFORM pglatch_lease.durable(p_wait);
	a := pglatch_lease.give(p_name, p_holder, p_id, p_token, p_release);
	PERFORM pglatch_lease.count(a.gained);
	outcome := a.outcome;
	seen := a.seen;
	r := a.r;
END $$;

-- batch does what take and give do, for several names in one transaction and in
-- the order that is given: by name, so that two of these never wait for each other. A
-- token of 0, which no lease has, is an acquire; the key of a release is its digest. What waits waits for all, so p_wait should
-- be short.
CREATE OR REPLACE FUNCTION pglatch_lease.batch(p_names text[], p_holders text[], p_ids text[], p_tokens bigint[],
	p_ttls bigint[], p_keys text[], p_metadata text[], p_lock_delays bigint[], p_min_holds bigint[], p_max_lifetimes bigint[], p_wait text)
RETURNS TABLE (i int, outcome text, seen timestamptz, r pglatch_lease.locks)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	q record;
	a record;
	gained int := 0;
BEGIN
	PERFORM pglatch_lease.durable(p_wait);
	FOR q IN SELECT * FROM unnest(p_names, p_holders, p_ids, p_tokens, p_ttls, p_keys, p_metadata, p_lock_delays, p_min_holds, p_max_lifetimes)
			WITH ORDINALITY AS u(name, holder, id, token, ttl, key, metadata, lock_delay, min_hold, max_lifetime, ord) ORDER BY u.ord LOOP
		IF q.token = 0 THEN
			a := pglatch_lease.take(q.name, q.holder, q.id, q.ttl, q.key, q.metadata::json, q.lock_delay, q.min_hold, q.max_lifetime);
		ELSE
			a := pglatch_lease.give(q.name, q.holder, q.id, q.token, q.key);
		END IF;
		i := q.ord;
		outcome := a.outcome;
		seen := a.seen;
		r := a.r;
		gained := gained + a.gained;
		RETURN NEXT;
	END LOOP;
	PERFORM pglatch_lease.count(gained);
END $$;
