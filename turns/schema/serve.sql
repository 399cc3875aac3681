
-- open_mailbox stores the limits of a mailbox, and reports whether its namespace is this one.
CREATE OR REPLACE FUNCTION pglatch_turns.open_mailbox(p_name text, p_namespace text, p_max_bytes bigint, p_max_depth bigint, p_quiet interval, p_refuse bool, p_keep interval, p_max_total bigint DEFAULT 0) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	box pglatch_turns.mailboxes;
BEGIN
	INSERT INTO pglatch_turns.mailboxes AS b (name, namespace, max_bytes, max_depth, quiet, refuse, keep, max_total)
		VALUES (p_name, p_namespace, p_max_bytes, p_max_depth, p_quiet, p_refuse, p_keep, p_max_total) ON CONFLICT DO NOTHING;
	SELECT b.* INTO box FROM pglatch_turns.mailboxes AS b WHERE b.name = p_name;
	IF box.namespace <> p_namespace THEN
		RETURN false;
	END IF;
	UPDATE pglatch_turns.mailboxes AS b SET (max_bytes, max_depth, quiet, refuse, keep, max_total, count_next) = (p_max_bytes, p_max_depth, p_quiet, p_refuse, p_keep, p_max_total, '-infinity')
		WHERE b.name = p_name AND (b.max_bytes, b.max_depth, b.quiet, b.refuse, b.keep, b.max_total) IS DISTINCT FROM (p_max_bytes, p_max_depth, p_quiet, p_refuse, p_keep, p_max_total);
	RETURN true;
END $$;

-- interrupted lists which of a node's turns are to end. The listening session keeps its plan.
CREATE OR REPLACE FUNCTION pglatch_turns.interrupted(p_mailbox text, p_node text, p_tokens bigint[]) RETURNS TABLE (token bigint, reason text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY SELECT e.token, e.interrupt FROM unnest(p_tokens) AS t (token)
		CROSS JOIN LATERAL (SELECT x.token, x.interrupt FROM pglatch_turns.entities AS x
			WHERE x.mailbox = p_mailbox AND x.node = p_node AND x.token = t.token AND x.state = 'running' LIMIT 1) AS e
		WHERE e.interrupt IS NOT NULL;
END $$;

-- This is what programs ask that need version 3.
CREATE OR REPLACE FUNCTION pglatch_turns.interrupted(p_mailbox text, p_node text) RETURNS TABLE (token bigint, reason text)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT e.token, e.interrupt FROM pglatch_turns.entities AS e WHERE e.mailbox = p_mailbox AND e.node = p_node AND e.state = 'running' AND e.interrupt IS NOT NULL
$$;

-- look is all that an idle server asks. due is in how many milliseconds the next entity is ready, dead are
-- nodes whose processes have ended, next is the node
-- with running turns that this one watches, interrupted: one of the turns with p_tokens is to end. count: somebody should count
-- the messages. now is in microseconds since 1970.
-- p_all: mine is how many turns this node has.
-- p_since: due is of entities that are ready since then or later, in microseconds since 1970.
-- While a snapshot is held, the indexes keep an entry of each turn that ended. Without p_since, and with p_all, a look reads all
-- of them.
CREATE OR REPLACE FUNCTION pglatch_turns.look(p_mailbox text, p_node text, p_since bigint, p_tokens bigint[], p_all bool) RETURNS json
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT json_build_object(
		'now', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
		'due', (SELECT extract(epoch FROM e.ready_at - clock_timestamp()) * 1000 FROM pglatch_turns.entities AS e
			WHERE e.mailbox = p_mailbox AND e.state = 'ready' AND e.ready_at >= to_timestamp(p_since / 1000000.0::float8) ORDER BY e.ready_at LIMIT 1),
		'dead', ARRAY(SELECT n.node FROM pglatch_turns.nodes AS n WHERE n.mailbox = p_mailbox AND n.node <> p_node AND pg_try_advisory_xact_lock_shared(n.key)),
		'next', (SELECT json_build_object('node', n.node, 'key', n.key::text) FROM pglatch_turns.nodes AS n WHERE n.mailbox = p_mailbox AND n.node <> p_node
				AND (SELECT true FROM pglatch_turns.entities AS e WHERE e.mailbox = p_mailbox AND e.node = n.node AND e.state = 'running' ORDER BY e.token DESC LIMIT 1)
			ORDER BY n.node < p_node, n.node LIMIT 1),
		'mine', CASE WHEN p_all THEN (SELECT count(*) FROM pglatch_turns.entities AS e WHERE e.mailbox = p_mailbox AND e.node = p_node AND e.state = 'running') ELSE 0 END,
		'interrupted', EXISTS (SELECT FROM pglatch_turns.interrupted(p_mailbox, p_node, p_tokens)),
		'count', (SELECT b.count_next <= clock_timestamp() AND (b.counted > 0 OR b.counted_number < pglatch_turns.last_number())
			FROM pglatch_turns.mailboxes AS b WHERE b.name = p_mailbox AND b.max_total > 0))
$$;

-- earliest is when the entity became or becomes ready that is first, in microseconds since 1970.
CREATE OR REPLACE FUNCTION pglatch_turns.earliest(p_mailbox text) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT (extract(epoch FROM e.ready_at) * 1000000)::bigint FROM pglatch_turns.entities AS e WHERE e.mailbox = p_mailbox AND e.state = 'ready' ORDER BY e.ready_at LIMIT 1
$$;

-- This is the look of programs that need version 3.
CREATE OR REPLACE FUNCTION pglatch_turns.look(p_mailbox text, p_node text) RETURNS json
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT pglatch_turns.look(p_mailbox, p_node, 0, ARRAY(SELECT e.token FROM pglatch_turns.entities AS e WHERE e.mailbox = p_mailbox AND e.node = p_node AND e.state = 'running'), true)
$$;

-- claim takes the entities that have been ready for longest, and records the attempts before any handler runs.
-- A promoted standby can give numbers of the sequence again. The random part of a token keeps turns apart that the old
-- primary and the new one gave one number.
-- p_awake > 0: this server goes on looking for so long, and senders need not notify.
-- p_since: only entities that have been ready since then or later, in microseconds since 1970. While a snapshot is held, the
-- index keeps an entry of each turn that ended, and without p_since a claim would read all of them. A look finds earlier
-- entities: those of transactions that were open for long.
CREATE OR REPLACE FUNCTION pglatch_turns.claim(p_mailbox text, p_node text, p_most bigint, p_awake interval, p_since bigint)
RETURNS TABLE (entity text, token bigint, attempts int, after bigint, last_error text, ready bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
	earliest CONSTANT timestamptz := to_timestamp(p_since / 1000000.0::float8);
BEGIN
	PERFORM pglatch_turns.limit_idle();
	RETURN QUERY UPDATE pglatch_turns.entities AS e
		SET state = 'running', token = nextval('pglatch_turns.token') * 1048576 + floor(random() * 1048576)::bigint, attempts = e.attempts + 1, node = p_node, claimed_at = clock_timestamp(), interrupt = NULL
		WHERE e.ctid = ANY (ARRAY(SELECT r.ctid FROM pglatch_turns.entities AS r
			WHERE r.mailbox = p_mailbox AND r.state = 'ready' AND r.ready_at >= earliest AND r.ready_at <= statement_timestamp()
			ORDER BY r.ready_at LIMIT p_most FOR UPDATE SKIP LOCKED))
		RETURNING e.entity, e.token, e.attempts, e.after, e.last_error, (extract(epoch FROM e.ready_at) * 1000000)::bigint;
	IF FOUND AND p_awake > interval '0' THEN
		UPDATE pglatch_turns.mailboxes AS b SET awake_until = clock_timestamp() + p_awake
			WHERE b.name = (SELECT s.name FROM pglatch_turns.mailboxes AS s WHERE s.name = p_mailbox AND s.awake_until < clock_timestamp() + p_awake / 2 FOR NO KEY UPDATE SKIP LOCKED);
	END IF;
END $$;

-- This is the claim of programs that need version 1.
CREATE OR REPLACE FUNCTION pglatch_turns.claim(p_mailbox text, p_node text, p_most bigint, p_awake interval)
RETURNS TABLE (entity text, token bigint, attempts int, after bigint, last_error text)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT c.entity, c.token, c.attempts, c.after, c.last_error FROM pglatch_turns.claim(p_mailbox, p_node, p_most, p_awake, 0) AS c
$$;

-- take reads the first messages of entities. It comes in a statement of its own after claim, so that its snapshot
-- shows what earlier turns deleted.
CREATE OR REPLACE FUNCTION pglatch_turns.take(p_mailbox text, p_entities text[], p_after bigint[], p_most bigint[])
RETURNS TABLE (entity text, number bigint, id text, trace text, sent_at timestamptz, body bytea, age_ms bigint, newest_ms bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY SELECT c.entity, m.number, m.id, m.trace, m.sent_at, m.body,
			(extract(epoch FROM clock_timestamp() - m.sent_at) * 1000)::bigint, (extract(epoch FROM clock_timestamp() - l.sent_at) * 1000)::bigint
		FROM unnest(p_entities, p_after, p_most) AS c (entity, after, most)
		CROSS JOIN LATERAL (SELECT x.* FROM pglatch_turns.messages AS x WHERE x.mailbox = p_mailbox AND x.entity = c.entity AND x.number > c.after
			ORDER BY x.number LIMIT c.most) AS m
		CROSS JOIN LATERAL (SELECT x.sent_at FROM pglatch_turns.messages AS x WHERE x.mailbox = p_mailbox AND x.entity = c.entity AND x.number > c.after
			ORDER BY x.number DESC LIMIT 1) AS l
		ORDER BY c.entity, m.number;
END $$;

-- rest ends a turn whose row the transaction has locked, at p_place. The row of an entity without messages is deleted, but not
-- while a sender is between its message and its commit: then a later claim finds out.
CREATE OR REPLACE FUNCTION pglatch_turns.rest(p_place tid, p_mailbox text, p_entity text, p_after bigint, p_attempts int, p_pause interval, p_error text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
	IF pg_try_advisory_xact_lock(pglatch_turns.send_key(p_mailbox, p_entity)) THEN
		-- A later statement, in READ COMMITTED: it shows what all earlier senders sent.
		IF NOT EXISTS (SELECT FROM pglatch_turns.messages AS m WHERE m.mailbox = p_mailbox AND m.entity = p_entity AND m.number > p_after) THEN
			DELETE FROM pglatch_turns.entities AS e WHERE e.ctid = p_place;
			RETURN;
		END IF;
	END IF;
	UPDATE pglatch_turns.entities AS e SET state = 'ready', ready_at = clock_timestamp() + p_pause, after = p_after, attempts = p_attempts, node = '',
			interrupt = NULL, last_error = p_error
		WHERE e.ctid = p_place;
END $$;
DROP FUNCTION IF EXISTS pglatch_turns.rest(text, text, bigint, int, interval, text); -- of version 3: without the place

-- is_current reports whether a node's token is that of the entity's running turn. The index of running turns has one entry of
-- it, whereas that of the entities keeps one of each earlier turn while a snapshot is held.
CREATE OR REPLACE FUNCTION pglatch_turns.is_current(p_mailbox text, p_node text, p_entity text, p_token bigint) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
	RETURN coalesce((SELECT e.entity = p_entity FROM pglatch_turns.entities AS e
		WHERE e.mailbox = p_mailbox AND e.node = p_node AND e.token = p_token AND e.state = 'running'), false);
END $$;

-- finish deletes exactly the messages that a turn took, under the lock of the entity's row, and ends the turn. It
-- reports false, and has changed nothing that may commit, if the turn is not the current one or a message is missing.
CREATE OR REPLACE FUNCTION pglatch_turns.finish(p_mailbox text, p_node text, p_entity text, p_token bigint, p_numbers bigint[], p_value bytea) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	e record;
	ids text[];
	last CONSTANT bigint := (SELECT max(n) FROM unnest(p_numbers) AS n);
BEGIN
	SELECT x.ctid AS place, x.entity, x.after INTO e FROM pglatch_turns.entities AS x
		WHERE x.mailbox = p_mailbox AND x.node = p_node AND x.token = p_token AND x.state = 'running' FOR UPDATE;
	IF NOT FOUND OR e.entity <> p_entity THEN
		RETURN false;
	END IF;
	WITH gone AS (DELETE FROM pglatch_turns.messages AS m WHERE m.mailbox = p_mailbox AND m.entity = p_entity AND m.number = ANY (p_numbers) RETURNING m.id)
		SELECT array_agg(g.id) INTO ids FROM gone AS g;
	IF coalesce(cardinality(ids), 0) <> cardinality(p_numbers) THEN
		RETURN false;
	END IF;
	UPDATE pglatch_turns.sent AS s SET done_at = clock_timestamp(), value = p_value WHERE s.mailbox = p_mailbox AND s.entity = p_entity AND s.id = ANY (ids) AND s.id <> '';
	-- A dead letter that came back meanwhile can be before the last of the turn's messages.
	PERFORM pglatch_turns.rest(e.place, p_mailbox, p_entity, coalesce((SELECT m.number - 1 FROM pglatch_turns.messages AS m
		WHERE m.mailbox = p_mailbox AND m.entity = p_entity AND m.number > e.after AND m.number < last ORDER BY m.number LIMIT 1), last), 0, interval '0', '');
	RETURN true;
END $$;

-- These are for programs that need version 3.
CREATE OR REPLACE FUNCTION pglatch_turns.is_current(p_mailbox text, p_entity text, p_token bigint) RETURNS bool
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT coalesce((SELECT e.token = p_token AND e.state = 'running' FROM pglatch_turns.entities AS e WHERE e.mailbox = p_mailbox AND e.entity = p_entity), false)
$$;
CREATE OR REPLACE FUNCTION pglatch_turns.finish(p_mailbox text, p_entity text, p_token bigint, p_numbers bigint[], p_value bytea) RETURNS bool
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	SELECT coalesce((SELECT pglatch_turns.finish(p_mailbox, e.node, p_entity, p_token, p_numbers, p_value) FROM pglatch_turns.entities AS e
		WHERE e.mailbox = p_mailbox AND e.entity = p_entity), false)
$$;

-- fail ends a turn that made no commit. p_dead: its messages are dead letters now. p_stop: the entity stops then.
CREATE OR REPLACE FUNCTION pglatch_turns.fail(p_mailbox text, p_entity text, p_token bigint, p_numbers bigint[], p_error text, p_pause interval, p_dead bool, p_stop bool) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	e record;
BEGIN
	PERFORM pglatch_turns.limit_idle();
	SELECT x.ctid AS place, x.* INTO e FROM pglatch_turns.entities AS x WHERE x.mailbox = p_mailbox AND x.entity = p_entity FOR UPDATE;
	IF NOT FOUND OR e.token <> p_token OR e.state <> 'running' THEN
		RETURN false;
	END IF;
	IF NOT p_dead THEN
		PERFORM pglatch_turns.rest(e.place, p_mailbox, p_entity, e.after, e.attempts, p_pause, p_error);
		RETURN true;
	END IF;
	WITH gone AS (DELETE FROM pglatch_turns.messages AS m WHERE m.mailbox = p_mailbox AND m.entity = p_entity AND m.number = ANY (p_numbers) RETURNING m.*)
		INSERT INTO pglatch_turns.dead (mailbox, number, entity, position, id, trace, sent_at, body, attempts, error, died_at)
		SELECT g.mailbox, g.number, g.entity, g.position, g.id, g.trace, g.sent_at, g.body, e.attempts, p_error, clock_timestamp() FROM gone AS g;
	IF p_stop THEN
		UPDATE pglatch_turns.entities AS x SET state = 'stopped', attempts = 0, node = '', interrupt = NULL, last_error = p_error
			WHERE x.mailbox = p_mailbox AND x.entity = p_entity;
		RETURN true;
	END IF;
	PERFORM pglatch_turns.rest(e.place, p_mailbox, p_entity, e.after, 0, interval '0', '');
	RETURN true;
END $$;

-- give_back ends a turn that was not tried: the attempt does not count.
CREATE OR REPLACE FUNCTION pglatch_turns.give_back(p_mailbox text, p_entity text, p_token bigint, p_pause interval) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	e record;
BEGIN
	PERFORM pglatch_turns.limit_idle();
	SELECT x.ctid AS place, x.* INTO e FROM pglatch_turns.entities AS x WHERE x.mailbox = p_mailbox AND x.entity = p_entity FOR UPDATE;
	IF NOT FOUND OR e.token <> p_token OR e.state <> 'running' THEN
		RETURN false;
	END IF;
	PERFORM pglatch_turns.rest(e.place, p_mailbox, p_entity, e.after, greatest(e.attempts - 1, 0), p_pause, e.last_error);
	RETURN true;
END $$;

-- join_node makes a node known that holds the lock of its key.
CREATE OR REPLACE FUNCTION pglatch_turns.join_node(p_mailbox text, p_node text, p_key bigint) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	INSERT INTO pglatch_turns.nodes (mailbox, node, key) VALUES (p_mailbox, p_node, p_key) ON CONFLICT DO NOTHING
$$;

-- reclaim makes the turns of a node ready again if nobody holds the node's lock. A row that is locked belongs to a
-- commit that has not ended: another look finds it. The attempts stay as they are.
CREATE OR REPLACE FUNCTION pglatch_turns.reclaim(p_mailbox text, p_node text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	freed bigint;
BEGIN
	PERFORM pglatch_turns.limit_idle();
	IF NOT coalesce((SELECT pg_try_advisory_xact_lock(n.key) FROM pglatch_turns.nodes AS n WHERE n.mailbox = p_mailbox AND n.node = p_node), false) THEN
		RETURN 0;
	END IF;
	UPDATE pglatch_turns.entities AS e SET state = 'ready', ready_at = clock_timestamp(), node = '', interrupt = NULL,
			last_error = 'the process that ran the turn ended'
		WHERE e.ctid = ANY (ARRAY(SELECT r.ctid FROM pglatch_turns.entities AS r WHERE r.mailbox = p_mailbox AND r.node = p_node AND r.state = 'running' FOR UPDATE SKIP LOCKED));
	GET DIAGNOSTICS freed = ROW_COUNT;
	DELETE FROM pglatch_turns.nodes AS n WHERE n.mailbox = p_mailbox AND n.node = p_node
		AND NOT EXISTS (SELECT FROM pglatch_turns.entities AS e WHERE e.mailbox = p_mailbox AND e.node = p_node AND e.state = 'running');
	RETURN freed;
END $$;

-- orphans gives back what a node claimed without an answer: turns whose tokens it does not know.
CREATE OR REPLACE FUNCTION pglatch_turns.orphans(p_mailbox text, p_node text, p_tokens bigint[]) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	UPDATE pglatch_turns.entities AS e SET state = 'ready', ready_at = clock_timestamp(), node = '', attempts = greatest(e.attempts - 1, 0), interrupt = NULL
		WHERE e.mailbox = p_mailbox AND e.node = p_node AND e.state = 'running' AND e.token <> ALL (p_tokens)
$$;

-- interrupt asks the running turn of an entity to end, and notifies its node.
CREATE OR REPLACE FUNCTION pglatch_turns.interrupt(p_mailbox text, p_entity text, p_reason text) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	e pglatch_turns.entities;
BEGIN
	SELECT x.* INTO e FROM pglatch_turns.entities AS x WHERE x.mailbox = p_mailbox AND x.entity = p_entity FOR UPDATE;
	IF NOT FOUND OR e.state <> 'running' THEN
		RETURN false;
	END IF;
	UPDATE pglatch_turns.entities AS x SET interrupt = p_reason WHERE x.mailbox = p_mailbox AND x.entity = p_entity;
	PERFORM pg_notify(pglatch_turns.channel(p_mailbox), 'interrupt');
	RETURN true;
END $$;

-- retry_dead puts a dead letter back in its place: its number is the old one.
CREATE OR REPLACE FUNCTION pglatch_turns.retry_dead(p_mailbox text, p_number bigint) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	d pglatch_turns.dead;
BEGIN
	SELECT x.* INTO d FROM pglatch_turns.dead AS x WHERE x.mailbox = p_mailbox AND x.number = p_number FOR UPDATE;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	PERFORM pg_advisory_xact_lock(pglatch_turns.send_key(p_mailbox, d.entity));
	DELETE FROM pglatch_turns.dead AS x WHERE x.mailbox = p_mailbox AND x.number = p_number;
	INSERT INTO pglatch_turns.messages (mailbox, entity, number, position, id, trace, sent_at, body)
		VALUES (d.mailbox, d.entity, d.number, d.position, d.id, d.trace, d.sent_at, d.body);
	INSERT INTO pglatch_turns.entities AS e (mailbox, entity, state, ready_at, after) VALUES (p_mailbox, d.entity, 'ready', clock_timestamp(), d.number - 1)
		ON CONFLICT ON CONSTRAINT entities_pkey DO UPDATE SET after = least(e.after, d.number - 1),
			state = CASE WHEN e.state = 'stopped' THEN 'ready' ELSE e.state END, ready_at = CASE WHEN e.state = 'stopped' THEN clock_timestamp() ELSE e.ready_at END;
	PERFORM pg_notify(pglatch_turns.channel(p_mailbox), '');
	RETURN true;
END $$;

-- skip_dead forgets a dead letter. An entity that it stopped goes on.
CREATE OR REPLACE FUNCTION pglatch_turns.skip_dead(p_mailbox text, p_number bigint) RETURNS bool
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	d pglatch_turns.dead;
	e record;
BEGIN
	DELETE FROM pglatch_turns.dead AS x WHERE x.mailbox = p_mailbox AND x.number = p_number RETURNING x.* INTO d;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	SELECT x.ctid AS place, x.* INTO e FROM pglatch_turns.entities AS x WHERE x.mailbox = p_mailbox AND x.entity = d.entity AND x.state = 'stopped' FOR UPDATE;
	IF FOUND THEN
		PERFORM pglatch_turns.rest(e.place, p_mailbox, d.entity, e.after, 0, interval '0', '');
		PERFORM pg_notify(pglatch_turns.channel(p_mailbox), '');
	END IF;
	RETURN true;
END $$;

-- purge deletes all messages and dead letters of an entity. Its running turn is stale then.
CREATE OR REPLACE FUNCTION pglatch_turns.purge(p_mailbox text, p_entity text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	gone bigint;
	also bigint;
BEGIN
	PERFORM pg_advisory_xact_lock(pglatch_turns.send_key(p_mailbox, p_entity));
	DELETE FROM pglatch_turns.entities AS e WHERE e.mailbox = p_mailbox AND e.entity = p_entity;
	DELETE FROM pglatch_turns.messages AS m WHERE m.mailbox = p_mailbox AND m.entity = p_entity;
	GET DIAGNOSTICS gone = ROW_COUNT;
	DELETE FROM pglatch_turns.dead AS d WHERE d.mailbox = p_mailbox AND d.entity = p_entity;
	GET DIAGNOSTICS also = ROW_COUNT;
	RETURN gone + also;
END $$;

-- sweep deletes some IDs and dead letters that were kept for long enough.
CREATE OR REPLACE FUNCTION pglatch_turns.sweep(p_mailbox text, p_keep_dead interval) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
	DELETE FROM pglatch_turns.sent AS s WHERE s.ctid = ANY (ARRAY(SELECT x.ctid FROM pglatch_turns.sent AS x
		WHERE x.mailbox = p_mailbox AND x.sent_at < statement_timestamp() - (SELECT b.keep FROM pglatch_turns.mailboxes AS b WHERE b.name = p_mailbox)
			AND NOT EXISTS (SELECT FROM pglatch_turns.messages AS m WHERE m.mailbox = x.mailbox AND m.entity = x.entity AND m.number = x.number)
		ORDER BY x.sent_at LIMIT 1000 FOR UPDATE SKIP LOCKED));
	DELETE FROM pglatch_turns.dead AS d WHERE d.ctid = ANY (ARRAY(SELECT x.ctid FROM pglatch_turns.dead AS x
		WHERE x.mailbox = p_mailbox AND x.died_at < statement_timestamp() - p_keep_dead ORDER BY x.died_at LIMIT 1000 FOR UPDATE SKIP LOCKED));
$$;
