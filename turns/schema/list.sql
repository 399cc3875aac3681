
-- list_entities lists the entities of a state: ready, paused, running or stopped, those that are in it for longest
-- first. p_entity <> '': this one, whatever its state is.
CREATE OR REPLACE FUNCTION pglatch_turns.list_entities(p_mailbox text, p_state text, p_entity text, p_most bigint)
RETURNS TABLE (entity text, state text, attempts int, node text, since timestamptz, age_ms bigint, messages bigint, oldest_ms bigint, last_error text, interrupt text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
	SELECT e.entity, CASE WHEN e.state = 'ready' AND e.ready_at > statement_timestamp() THEN 'paused' ELSE e.state END, e.attempts, e.node,
			e.since, (extract(epoch FROM statement_timestamp() - e.since) * 1000)::bigint,
			coalesce(l.position - f.position + 1, 0), coalesce((extract(epoch FROM statement_timestamp() - f.sent_at) * 1000)::bigint, 0), e.last_error, coalesce(e.interrupt, '')
		FROM (SELECT x.*, CASE WHEN x.state = 'running' THEN x.claimed_at ELSE x.ready_at END AS since FROM pglatch_turns.entities AS x
			WHERE x.mailbox = p_mailbox AND CASE WHEN p_entity <> '' THEN x.entity = p_entity
				ELSE x.state = CASE WHEN p_state = 'paused' THEN 'ready' ELSE p_state END
					AND (p_state NOT IN ('ready', 'paused') OR (x.ready_at > statement_timestamp()) = (p_state = 'paused')) END
			ORDER BY since, x.entity LIMIT p_most) AS e
		LEFT JOIN LATERAL (SELECT m.position, m.sent_at FROM pglatch_turns.messages AS m
			WHERE m.mailbox = p_mailbox AND m.entity = e.entity AND m.number > e.after ORDER BY m.number LIMIT 1) AS f ON true
		LEFT JOIN LATERAL (SELECT m.position FROM pglatch_turns.messages AS m
			WHERE m.mailbox = p_mailbox AND m.entity = e.entity AND m.number > e.after ORDER BY m.number DESC LIMIT 1) AS l ON true
		ORDER BY e.since, e.entity
$$;
