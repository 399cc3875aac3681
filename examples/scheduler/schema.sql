CREATE SCHEMA IF NOT EXISTS code;

CREATE TABLE IF NOT EXISTS code.repos (
	id           integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	name         text NOT NULL UNIQUE,
	imports      text[] NOT NULL DEFAULT '{}', -- names of repos
	refreshed_at timestamptz,
	description  text
);

CREATE TABLE IF NOT EXISTS code.jobs (
	id         bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	repo_id    integer NOT NULL REFERENCES code.repos,
	state      text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done')),
	node       text, -- that claimed it
	work       interval NOT NULL DEFAULT '0', -- how long it takes, for demonstrations
	queued_at  timestamptz NOT NULL DEFAULT now(),
	done_at    timestamptz
);
CREATE INDEX IF NOT EXISTS jobs_open ON code.jobs (id) WHERE state <> 'done';

CREATE TABLE IF NOT EXISTS code.queries (
	id   bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	node text NOT NULL,
	text text NOT NULL,
	at   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS code.heartbeats (
	node text PRIMARY KEY,
	at   timestamptz NOT NULL
);

CREATE TABLE IF NOT EXISTS code.dependencies (
	repo_id integer NOT NULL REFERENCES code.repos,
	needs   integer NOT NULL REFERENCES code.repos,
	PRIMARY KEY (repo_id, needs)
);

-- What the schedulers did, written in their own transactions.
CREATE TABLE IF NOT EXISTS code.runs (
	id        bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	scheduler text NOT NULL,
	node      text NOT NULL,
	term      bigint NOT NULL,
	at        timestamptz NOT NULL DEFAULT clock_timestamp()
);
