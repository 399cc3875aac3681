CREATE SCHEMA IF NOT EXISTS hooks;

CREATE TABLE IF NOT EXISTS hooks.agents (
	id                 integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	session_id         text NOT NULL UNIQUE,
	pid                integer NOT NULL DEFAULT 0, -- of its process on this host; 0 = not known
	last_seen_at       timestamptz NOT NULL DEFAULT now(),
	ended_at           timestamptz,
	prompt_injected_at timestamptz,
	transcript_lines   integer NOT NULL DEFAULT 0, -- how many of them are in turns
	context_percent    integer NOT NULL DEFAULT 0,
	context_checked_at timestamptz
);

CREATE TABLE IF NOT EXISTS hooks.commands (
	id              bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	agent_id        integer NOT NULL REFERENCES hooks.agents,
	state           text NOT NULL DEFAULT 'processing' CHECK (state IN ('processing', 'awaiting_input', 'complete')),
	transcript_from integer NOT NULL, -- the answer to it begins at this line
	started_at      timestamptz NOT NULL DEFAULT now(),
	completed_at    timestamptz
);
CREATE INDEX IF NOT EXISTS commands_of_agent ON hooks.commands (agent_id, id);

CREATE TABLE IF NOT EXISTS hooks.turns (
	id         bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	command_id bigint NOT NULL REFERENCES hooks.commands,
	actor      text NOT NULL CHECK (actor IN ('user', 'agent')),
	text       text NOT NULL,
	summary    text,
	created_at timestamptz NOT NULL DEFAULT now()
);
