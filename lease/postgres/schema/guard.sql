
-- guard raises an error unless the claim is current. Its row lock lets renewals and a
-- release pass, and makes take wait until the transaction has ended. The session may
-- then be idle for no longer than the lease has left, or a second.
CREATE OR REPLACE FUNCTION pglatch_lease.guard(p_name text, p_holder text, p_id text, p_token bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	r pglatch_lease.locks;
	seen timestamptz;
	busy bool := false;
BEGIN
	IF pg_is_in_recovery() THEN
		RAISE EXCEPTION 'a standby guards no transaction' USING ERRCODE = 'read_only_sql_transaction';
	ELSIF current_setting('transaction_read_only') = 'on' THEN
		PERFORM pglatch_lease.refuse('readonly');
	END IF;
	-- What an acquire waits for. The row's lock is not enough: a renewal or a release that moves the row to
	-- another page, or writes to its TOAST table, drops a FOR KEY SHARE that was taken meanwhile.
	PERFORM pg_advisory_xact_lock_shared(hashtextextended(p_name, 8099561637531575563));
	IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
		busy := pglatch_lease.guard_snapshot(p_name, p_holder, p_id, p_token);
	END IF;
	SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name FOR KEY SHARE;
	seen := pglatch_lease.now();
	IF NOT FOUND THEN
		PERFORM pglatch_lease.refuse('unknown');
	ELSIF r.holder <> p_holder OR r.id <> p_id OR r.token <> p_token THEN
		PERFORM pglatch_lease.refuse(concat_ws(' ', 'stale', CASE WHEN r.holder <> p_holder THEN 'holder' END,
			CASE WHEN r.id <> p_id THEN 'id' END, CASE WHEN r.token <> p_token THEN 'token' END));
	ELSIF r.released_at IS NOT NULL THEN
		PERFORM pglatch_lease.refuse('released');
	ELSIF r.expires_at <= seen THEN
		-- Unless a renewal that was in time is about to commit, it has expired for ever.
		IF NOT busy AND pglatch_lease.keep(r.expires_at) THEN
			SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name FOR SHARE SKIP LOCKED;
			IF FOUND AND r.released_at IS NOT NULL THEN
				PERFORM pglatch_lease.refuse('released');
			ELSIF FOUND AND r.expires_at <= seen THEN
				PERFORM pglatch_lease.refuse('expired ' || (extract(epoch FROM r.expires_at) * 1000000)::bigint);
			END IF;
		END IF;
		RAISE EXCEPTION 'pglatch: the lease is being changed: try the whole transaction again' USING ERRCODE = 'serialization_failure';
	END IF;
	PERFORM pglatch_lease.limit_client(greatest(r.expires_at - seen, interval '1 second'));
END $$;

-- limit_client limits for the transaction how long its client may be idle or unreachable, and keeps shorter
-- limits. The server then notices within about that time that the client has stopped or gone.
CREATE OR REPLACE FUNCTION pglatch_lease.limit_client(p_bound interval) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	ms CONSTANT bigint := ceil(extract(epoch FROM p_bound) * 1000);
	probe CONSTANT bigint := greatest(ms / 4000, 1); -- seconds
	name text;
	value bigint;
	now bigint;
BEGIN
	FOR name, value IN VALUES ('idle_in_transaction_session_timeout', ms), ('client_connection_check_interval', least(ms / 4, 1000)),
		('tcp_keepalives_idle', probe), ('tcp_keepalives_interval', probe), ('tcp_keepalives_count', 3)
	LOOP
		now := CASE WHEN name LIKE 'tcp%' THEN current_setting(name)::bigint ELSE extract(epoch FROM current_setting(name)::interval) * 1000 END;
		IF now NOT BETWEEN 1 AND value AND (name <> 'client_connection_check_interval' OR strpos(version(), 'linux') > 0) THEN
			PERFORM set_config(name, value::text, true);
		END IF;
	END LOOP;
END $$;

CREATE OR REPLACE FUNCTION pglatch_lease.refuse(p_reason text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'pglatch lease guard refused: %.', p_reason USING ERRCODE = 'PGL01';
END $$;

-- guard_snapshot is what a guard needs above read committed, where the transaction's
-- snapshot may be older than what has become of the lease since. It returns if the row
-- that the snapshot shows is the last one, or is being changed (true); else it refuses, if the
-- claim is certainly not the current one, or raises a serialization failure.
CREATE OR REPLACE FUNCTION pglatch_lease.guard_snapshot(p_name text, p_holder text, p_id text, p_token bigint) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
	r pglatch_lease.locks;
	of_ssi text;
BEGIN
	SELECT l.* INTO r FROM pglatch_lease.locks AS l WHERE l.name = p_name;
	IF NOT FOUND THEN
		IF p_token > (SELECT s.floor FROM pglatch_lease.store AS s) THEN
			RAISE EXCEPTION 'pglatch: the lease is newer than the snapshot of the transaction: try the whole transaction again'
				USING ERRCODE = 'serialization_failure';
		END IF;
		RETURN false; -- it was forgotten before: guard says so
	END IF;
	BEGIN
		PERFORM FROM pglatch_lease.locks AS l WHERE l.name = p_name FOR KEY SHARE;
	EXCEPTION WHEN serialization_failure THEN
		-- The token has changed since, or the row was deleted. A failure of serializable
		-- transactions among themselves says nothing of the lease; it has details.
		GET STACKED DIAGNOSTICS of_ssi = PG_EXCEPTION_DETAIL;
		IF of_ssi = '' AND r.token >= p_token THEN
			PERFORM pglatch_lease.refuse('stale token');
		END IF;
		RAISE;
	END;
	-- A renewal or a release since is no change of a key: only a lock that conflicts with
	-- them tells. It is rolled back at once, so they go on.
	BEGIN
		PERFORM FROM pglatch_lease.locks AS l WHERE l.name = p_name FOR SHARE NOWAIT;
		RAISE EXCEPTION USING ERRCODE = 'PGL03';
	EXCEPTION
		WHEN SQLSTATE 'PGL03' THEN
			RETURN false;
		WHEN lock_not_available THEN
			RETURN true;
		WHEN serialization_failure THEN
			GET STACKED DIAGNOSTICS of_ssi = PG_EXCEPTION_DETAIL;
			IF of_ssi <> '' THEN
				RAISE;
			END IF;
			RAISE EXCEPTION 'pglatch: the lease was renewed, or has ended, since the snapshot of the transaction: try the whole transaction again'
				USING ERRCODE = 'serialization_failure';
	END;
END $$;
