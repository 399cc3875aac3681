
-- send_key is the lock that senders of one entity take until their transactions end. It is in the half of
-- the bigint keys that no namespace uses. Two entities with one key only wait for each other. Without a search_path of its
-- own, it becomes a part of the statements that call it.
CREATE OR REPLACE FUNCTION pglatch_turns.send_key(p_mailbox text, p_entity text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
	SELECT pg_catalog.hashtextextended(p_entity, pg_catalog.hashtextextended(p_mailbox, 8391737718543446899)) OPERATOR(pg_catalog.|) (-9223372036854775808)::pg_catalog.int8
$$;

-- lock_sends waits for the lock of an entity's senders, and reports whether it came in time. A lock_timeout of
-- the transaction's that is shorter counts too.
CREATE OR REPLACE FUNCTION pglatch_turns.lock_sends(p_mailbox text, p_entity text, p_wait_ms bigint) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	key CONSTANT bigint := pglatch_turns.send_key(p_mailbox, p_entity);
	own text;
	own_ms bigint;
	locked bool := true;
BEGIN
	own := current_setting('lock_timeout');
	own_ms := extract(epoch FROM own::interval) * 1000;
	PERFORM set_config('lock_timeout', CASE WHEN own_ms > 0 THEN least(own_ms, p_wait_ms) ELSE p_wait_ms END || 'ms', true);
	BEGIN
		PERFORM pg_advisory_xact_lock(key);
	EXCEPTION WHEN lock_not_available THEN -- here it is not written to the server's log
		locked := false;
	END;
	PERFORM set_config('lock_timeout', own, true);
	RETURN locked;
END $$;

-- limit_idle has the server end the transaction if its process is stopped in the middle of it: what it has locked is
-- free for others then.
CREATE OR REPLACE FUNCTION pglatch_turns.limit_idle() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF current_setting('idle_in_transaction_session_timeout')::interval NOT BETWEEN interval '1 millisecond' AND interval '15 s' THEN
		PERFORM set_config('idle_in_transaction_session_timeout', '15s', true);
	END IF;
END $$;

-- last_number is the last number that a message got.
CREATE OR REPLACE FUNCTION pglatch_turns.last_number() RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ SELECT coalesce(pg_sequence_last_value('pglatch_turns.number'), 0) $$;

-- count_all counts the messages of all entities, up to max_total, and stores the count unless somebody else just does so.
-- It takes a 20th of the time at most: the next count comes so much later. A transaction that cannot store it, because
-- its snapshot may be old, only counts.
CREATE OR REPLACE FUNCTION pglatch_turns.count_all(p_mailbox text, p_store bool) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	began CONSTANT timestamptz := clock_timestamp();
	number CONSTANT bigint := pglatch_turns.last_number(); -- before the count: later ones were sent since
	own bool := false;
	n bigint;
BEGIN
	IF p_store THEN
		PERFORM FROM pglatch_turns.mailboxes AS b WHERE b.name = p_mailbox AND b.count_next <= began FOR NO KEY UPDATE SKIP LOCKED;
		own := FOUND;
	END IF;
	SELECT count(*) INTO n FROM (SELECT FROM pglatch_turns.messages AS m WHERE m.mailbox = p_mailbox
		LIMIT (SELECT b.max_total FROM pglatch_turns.mailboxes AS b WHERE b.name = p_mailbox)) AS m;
	IF own THEN
		UPDATE pglatch_turns.mailboxes AS b SET counted = n, counted_number = number, count_next = clock_timestamp() + greatest(interval '1 s', 20 * (clock_timestamp() - began))
			WHERE b.name = p_mailbox;
	END IF;
	RETURN n;
END $$;

-- put sends a message: 'sent N', or 'again N' if the ID was sent before. Other answers mean that nothing
-- was done: 'unknown' (there is no such mailbox), 'bytes N', 'depth N', 'total N', 'invalid', 'occupied', 'timeout'.
--
-- The order is what counts. First the lock, which PostgreSQL keeps until the commit is visible to others.
-- Then the number. So the numbers of an entity follow the commits of its senders.
--
-- Each message pays for what is written here. So the first attempt for the lock and limit_idle are written out, and a
-- block with an EXCEPTION, which is a subtransaction, is only for snapshots that may be old.
CREATE OR REPLACE FUNCTION pglatch_turns.put(p_mailbox text, p_entity text, p_id text, p_body bytea, p_trace text, p_wait_ms bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	box pglatch_turns.mailboxes;
	fresh CONSTANT bool := current_setting('transaction_isolation') IN ('read committed', 'read uncommitted'); -- each statement has a new snapshot
	known bool;
	head bigint;
	n bigint;
	first bigint;
	last bigint;
	total bigint;
	at timestamptz;
	idle text;
BEGIN
	SELECT b.* INTO box FROM pglatch_turns.mailboxes AS b WHERE b.name = p_mailbox;
	IF NOT FOUND THEN
		RETURN 'unknown';
	ELSIF coalesce(p_entity, '') = '' OR octet_length(p_entity) > 1000 OR octet_length(p_id) > 1000 OR octet_length(p_trace) > 1000 OR p_body IS NULL THEN
		RETURN 'invalid';
	ELSIF octet_length(p_body) > box.max_bytes THEN
		RETURN 'bytes ' || box.max_bytes;
	ELSIF NOT (pg_try_advisory_xact_lock(pglatch_turns.send_key(p_mailbox, p_entity)) OR pglatch_turns.lock_sends(p_mailbox, p_entity, p_wait_ms)) THEN
		RETURN 'timeout';
	END IF;
	IF current_setting('idle_in_transaction_session_timeout')::interval NOT BETWEEN interval '1 millisecond' AND interval '15 s' THEN
		idle := set_config('idle_in_transaction_session_timeout', '15s', true); -- or a process that is stopped here would keep all senders of the entity out
	END IF;
	IF p_id <> '' THEN
		SELECT s.number INTO n FROM pglatch_turns.sent AS s WHERE s.mailbox = p_mailbox AND s.entity = p_entity AND s.id = p_id;
		IF FOUND THEN
			RETURN 'again ' || n;
		END IF;
	END IF;
	SELECT e.after INTO head FROM pglatch_turns.entities AS e WHERE e.mailbox = p_mailbox AND e.entity = p_entity;
	known := FOUND;
	IF known AND box.refuse THEN
		RETURN 'occupied';
	END IF;
	IF known THEN
		SELECT m.position INTO last FROM pglatch_turns.messages AS m
			WHERE m.mailbox = p_mailbox AND m.entity = p_entity AND m.number > head ORDER BY m.number DESC LIMIT 1;
		IF last >= box.max_depth THEN -- positions begin at 1 again when nothing waits
			SELECT m.position INTO first FROM pglatch_turns.messages AS m
				WHERE m.mailbox = p_mailbox AND m.entity = p_entity AND m.number > head ORDER BY m.number LIMIT 1;
			IF last - first + 1 >= box.max_depth THEN
				RETURN 'depth ' || box.max_depth;
			END IF;
		END IF;
	END IF;
	-- Servers count. While none does, the numbers say how many can have come since, and a sender counts only if these
	-- are too many.
	IF box.max_total > 0 THEN
		total := box.counted;
		IF box.count_next + interval '5 s' < clock_timestamp() THEN
			total := box.counted + pglatch_turns.last_number() - box.counted_number;
			IF total >= box.max_total THEN
				total := pglatch_turns.count_all(p_mailbox, fresh);
			END IF;
		END IF;
		IF total >= box.max_total THEN
			RETURN 'total ' || box.max_total;
		END IF;
	END IF;
	n := nextval('pglatch_turns.number');
	at := clock_timestamp();
	INSERT INTO pglatch_turns.messages (mailbox, entity, number, position, id, trace, sent_at, body)
		VALUES (p_mailbox, p_entity, n, coalesce(last, 0) + 1, coalesce(p_id, ''), coalesce(p_trace, ''), at, p_body);
	IF p_id <> '' AND fresh THEN
		INSERT INTO pglatch_turns.sent (mailbox, entity, id, number, sent_at) VALUES (p_mailbox, p_entity, p_id, n, at);
	ELSIF p_id <> '' THEN
		BEGIN
			INSERT INTO pglatch_turns.sent (mailbox, entity, id, number, sent_at) VALUES (p_mailbox, p_entity, p_id, n, at);
		EXCEPTION WHEN unique_violation THEN
			RAISE EXCEPTION 'pglatch: the snapshot is older than the first message with this ID: try the whole transaction again' USING ERRCODE = 'serialization_failure';
		END;
	END IF;
	-- While the lock is held, nobody deletes the row of the entity. An old snapshot can show one that is gone.
	IF fresh THEN
		IF NOT known THEN
			INSERT INTO pglatch_turns.entities (mailbox, entity, state, ready_at, after) VALUES (p_mailbox, p_entity, 'ready', at + box.quiet, n - 1);
		END IF;
	ELSE
		BEGIN
			INSERT INTO pglatch_turns.entities (mailbox, entity, state, ready_at, after) VALUES (p_mailbox, p_entity, 'ready', at + box.quiet, n - 1);
		EXCEPTION WHEN unique_violation THEN
			IF box.refuse THEN
				RAISE EXCEPTION 'pglatch: the snapshot is older than the message that the entity has: try the whole transaction again' USING ERRCODE = 'serialization_failure';
			END IF;
		END;
	END IF;
	IF box.awake_until < at THEN
		PERFORM pg_notify(pglatch_turns.channel(p_mailbox), '');
	END IF;
	RETURN 'sent ' || n;
END $$;

-- pglatch_send is put for callers in SQL: it returns the number, and raises an error if nothing was done.
CREATE OR REPLACE FUNCTION pglatch_turns.pglatch_send(mailbox text, entity text, body bytea, id text DEFAULT '', trace text DEFAULT '', wait_ms bigint DEFAULT 5000) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	answer CONSTANT text := pglatch_turns.put(mailbox, entity, id, body, trace, wait_ms);
	word CONSTANT text := split_part(answer, ' ', 1);
BEGIN
	CASE word
		WHEN 'sent', 'again' THEN
			RETURN split_part(answer, ' ', 2)::bigint;
		WHEN 'timeout' THEN
			RAISE EXCEPTION 'pglatch: another transaction has sent to % and has not ended', entity USING ERRCODE = 'lock_not_available';
		WHEN 'unknown' THEN
			RAISE EXCEPTION 'pglatch: there is no mailbox %', mailbox USING ERRCODE = 'undefined_object';
		WHEN 'occupied' THEN
			RAISE EXCEPTION 'pglatch: % is busy', entity USING ERRCODE = 'object_in_use';
		WHEN 'invalid' THEN
			RAISE EXCEPTION 'pglatch: an entity has 1 to 1000 bytes, an ID and a trace at most 1000, and a body is required' USING ERRCODE = 'invalid_parameter_value';
		ELSE
			RAISE EXCEPTION 'pglatch: a message for % exceeds the limit of the mailbox: %', entity, answer USING ERRCODE = 'program_limit_exceeded';
	END CASE;
END $$;

-- outcome says what became of a message: waiting, running, done, dead or unknown, with the attempts, the last error
-- and the value that the commit stored.
CREATE OR REPLACE FUNCTION pglatch_turns.outcome(p_mailbox text, p_entity text, p_number bigint, p_id text, OUT state text, OUT attempts int, OUT error text, OUT value bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
	e pglatch_turns.entities;
	first bigint;
BEGIN
	attempts := 0;
	error := '';
	SELECT 'done', s.value INTO state, value FROM pglatch_turns.sent AS s
		WHERE s.mailbox = p_mailbox AND s.entity = p_entity AND s.id = p_id AND s.number = p_number AND s.done_at IS NOT NULL;
	IF FOUND THEN
		RETURN;
	END IF;
	SELECT 'dead', d.attempts, d.error INTO state, attempts, error FROM pglatch_turns.dead AS d WHERE d.mailbox = p_mailbox AND d.number = p_number;
	IF FOUND THEN
		RETURN;
	END IF;
	state := 'unknown';
	attempts := 0;
	error := '';
	PERFORM FROM pglatch_turns.messages AS m WHERE m.mailbox = p_mailbox AND m.entity = p_entity AND m.number = p_number;
	IF FOUND THEN
		state := 'waiting';
		SELECT x.* INTO e FROM pglatch_turns.entities AS x WHERE x.mailbox = p_mailbox AND x.entity = p_entity;
		SELECT m.number INTO first FROM pglatch_turns.messages AS m WHERE m.mailbox = p_mailbox AND m.entity = p_entity AND m.number > e.after ORDER BY m.number LIMIT 1;
		IF first = p_number AND e.state = 'running' THEN
			state := 'running';
		END IF;
		IF first = p_number THEN
			attempts := e.attempts;
			error := e.last_error;
		END IF;
	END IF;
END $$;

REVOKE ALL ON FUNCTION pglatch_turns.put(text, text, text, bytea, text, bigint), pglatch_turns.pglatch_send(text, text, bytea, text, text, bigint),
	pglatch_turns.outcome(text, text, bigint, text) FROM PUBLIC;
