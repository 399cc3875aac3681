-- The schema of package turns. It can be run again, and beside running programs.
--
-- Functions that run for each message set how they are planned. A session keeps one plan of each statement, because making one
-- takes longer than running it. The plan is one by the indexes, even if it was made while the tables were empty.
CREATE SCHEMA IF NOT EXISTS pglatch_turns;

CREATE TABLE IF NOT EXISTS pglatch_turns.store (
	one bool PRIMARY KEY DEFAULT true CHECK (one),
	schema_version int NOT NULL
);
INSERT INTO pglatch_turns.store (schema_version) VALUES (0) ON CONFLICT DO NOTHING;

-- CACHE 1: a session that kept numbers in reserve would take them out of order.
CREATE SEQUENCE IF NOT EXISTS pglatch_turns.number AS bigint CACHE 1;
CREATE SEQUENCE IF NOT EXISTS pglatch_turns.token AS bigint CACHE 1;

-- One row for each mailbox: the limits that apply to all senders.
CREATE TABLE IF NOT EXISTS pglatch_turns.mailboxes (
	name text COLLATE "C" PRIMARY KEY,
	namespace text NOT NULL,               -- "name=number": the keys of its entities
	max_bytes bigint NOT NULL,             -- of a body
	max_depth bigint NOT NULL,             -- of an entity
	quiet interval NOT NULL,               -- how long the first message waits for more
	refuse bool NOT NULL,                  -- messages for an entity that has one are refused
	keep interval NOT NULL,                -- how long a message's ID is known
	awake_until timestamptz NOT NULL DEFAULT '-infinity', -- until then a server looks often: a sender need not notify
	max_total bigint NOT NULL DEFAULT 0,   -- of all entities together; 0 = no limit
	counted bigint NOT NULL DEFAULT 0,     -- how many messages all entities had at the last count, up to max_total
	counted_number bigint NOT NULL DEFAULT 0, -- the last number that was given before it
	count_next timestamptz NOT NULL DEFAULT '-infinity' -- until then nobody counts again
) WITH (fillfactor = 50);

-- The messages that wait, those of running turns too. A commit deletes them.
CREATE TABLE IF NOT EXISTS pglatch_turns.messages (
	mailbox text COLLATE "C" NOT NULL,
	entity text COLLATE "C" NOT NULL,
	number bigint NOT NULL,
	position bigint NOT NULL,              -- the last one's minus the first one's: the depth
	id text COLLATE "C" NOT NULL,          -- '' = none
	trace text NOT NULL,
	sent_at timestamptz NOT NULL,
	body bytea NOT NULL,
	PRIMARY KEY (mailbox, entity, number)
);

-- One row for each entity that has messages or a turn. Senders insert it, and do not change it.
CREATE TABLE IF NOT EXISTS pglatch_turns.entities (
	mailbox text COLLATE "C" NOT NULL,
	entity text COLLATE "C" NOT NULL,
	state text NOT NULL,                   -- ready, running or stopped
	ready_at timestamptz NOT NULL,         -- ready: since when, or not before
	after bigint NOT NULL,                 -- no message has this number or a smaller one
	token bigint NOT NULL DEFAULT 0,       -- of the current or last claim
	attempts int NOT NULL DEFAULT 0,       -- in a row without a commit, with the current one
	node text COLLATE "C" NOT NULL DEFAULT '',
	claimed_at timestamptz,
	interrupt text,                        -- the reason why the running turn is to end
	last_error text NOT NULL DEFAULT '',
	PRIMARY KEY (mailbox, entity)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS entities_ready ON pglatch_turns.entities (mailbox, ready_at) WHERE state = 'ready';
CREATE INDEX IF NOT EXISTS entities_turn ON pglatch_turns.entities (mailbox, node, token) WHERE state = 'running';
DROP INDEX IF EXISTS pglatch_turns.entities_running; -- of version 3: without the token

-- What became of the messages that have an ID.
CREATE TABLE IF NOT EXISTS pglatch_turns.sent (
	mailbox text COLLATE "C" NOT NULL,
	entity text COLLATE "C" NOT NULL,
	id text COLLATE "C" NOT NULL,
	number bigint NOT NULL,
	sent_at timestamptz NOT NULL,
	done_at timestamptz,
	value bytea,                           -- what the commit stored
	PRIMARY KEY (mailbox, entity, id)
);
CREATE INDEX IF NOT EXISTS sent_sweep ON pglatch_turns.sent (mailbox, sent_at);

CREATE TABLE IF NOT EXISTS pglatch_turns.dead (
	mailbox text COLLATE "C" NOT NULL,
	number bigint NOT NULL,
	entity text COLLATE "C" NOT NULL,
	position bigint NOT NULL,
	id text COLLATE "C" NOT NULL,
	trace text NOT NULL,
	sent_at timestamptz NOT NULL,
	body bytea NOT NULL,
	attempts int NOT NULL,
	error text NOT NULL,
	died_at timestamptz NOT NULL,
	PRIMARY KEY (mailbox, number)
);
CREATE INDEX IF NOT EXISTS dead_entity ON pglatch_turns.dead (mailbox, entity);
CREATE INDEX IF NOT EXISTS dead_sweep ON pglatch_turns.dead (mailbox, died_at);

-- The nodes that serve. A node holds the advisory lock of its row.
CREATE TABLE IF NOT EXISTS pglatch_turns.nodes (
	mailbox text COLLATE "C" NOT NULL,
	node text COLLATE "C" NOT NULL,
	key bigint NOT NULL,
	PRIMARY KEY (mailbox, node)
);

-- channel is where the servers of a mailbox listen.
CREATE OR REPLACE FUNCTION pglatch_turns.channel(p_mailbox text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$ SELECT 'pglatch_turns/' || p_mailbox $$;
