
-- The store's time is the server's clock plus the shift, and never less than the mark: both
-- in microseconds, and in sequences, because every transaction sees the present of
-- those, whatever its snapshot is. Nobody but keep changes them.
CREATE SEQUENCE IF NOT EXISTS pglatch_lease.clock_mark MINVALUE 0 START 0;
CREATE SEQUENCE IF NOT EXISTS pglatch_lease.clock_shift MINVALUE 0 START 0;
GRANT SELECT ON SEQUENCE pglatch_lease.clock_mark, pglatch_lease.clock_shift TO PUBLIC;

-- mark and shift are what the sequences are at. To SELECT from a sequence is a scan, which
-- enable_seqscan = off makes so dear that the server compiles it.
CREATE OR REPLACE FUNCTION pglatch_lease.mark() RETURNS bigint LANGUAGE sql VOLATILE AS
	$$SELECT coalesce(pg_catalog.pg_sequence_last_value('pglatch_lease.clock_mark'::pg_catalog.regclass), 0)$$;
CREATE OR REPLACE FUNCTION pglatch_lease.shift() RETURNS bigint LANGUAGE sql VOLATILE AS
	$$SELECT coalesce(pg_catalog.pg_sequence_last_value('pglatch_lease.clock_shift'::pg_catalog.regclass), 0)$$;

-- wall is the server's clock, which can be set.
CREATE OR REPLACE FUNCTION pglatch_lease.wall() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp()';

-- keep moves the mark to the present, if it is behind p_time, or a clock that was set back
-- so far that time would stand still: the shift is then what continues time from the mark.
-- One transaction at a time may; it returns whether the mark is at p_time or later. What is
-- told on the strength of it waits for the commit. Everybody may call it, because it can only
-- do what the clock says.
CREATE OR REPLACE FUNCTION pglatch_lease.keep(p_time timestamptz) RETURNS bool
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	us CONSTANT interval := '1 microsecond';
	mark bigint := pglatch_lease.mark(); -- before the clock is read, so that it is no later
	shift bigint := pglatch_lease.shift();
	here bigint := (extract(epoch FROM pglatch_lease.wall()) * 1000000)::bigint + shift;
BEGIN
	IF timestamptz 'epoch' + mark * us >= p_time AND here >= mark THEN
		RETURN true;
	ELSIF current_setting('transaction_read_only') = 'on' OR NOT pg_try_advisory_xact_lock(8099561637531575563) THEN
		RETURN timestamptz 'epoch' + mark * us >= p_time;
	END IF;
	IF current_setting('synchronous_commit') IN ('off', 'local') THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	mark := pglatch_lease.mark();
	shift := pglatch_lease.shift();
	here := (extract(epoch FROM pglatch_lease.wall()) * 1000000)::bigint + shift;
	IF here < mark THEN
		PERFORM setval('pglatch_lease.clock_shift', shift + mark - here);
	ELSE
		mark := setval('pglatch_lease.clock_mark', here);
	END IF;
	RETURN timestamptz 'epoch' + mark * us >= p_time;
END $$;

-- now is the store's time. It stands still while a clock is set back that keep has not seen.
CREATE OR REPLACE FUNCTION pglatch_lease.now() RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
	us CONSTANT interval := '1 microsecond';
	kept timestamptz := timestamptz 'epoch' + pglatch_lease.mark() * us; -- first, as in keep
BEGIN
	RETURN greatest(pglatch_lease.wall() + pglatch_lease.shift() * us, kept);
END $$;

-- tick is now, and keeps it if that was not done for a second, or the clock was set back.
CREATE OR REPLACE FUNCTION pglatch_lease.tick() RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
	us CONSTANT interval := '1 microsecond';
	kept timestamptz := timestamptz 'epoch' + pglatch_lease.mark() * us; -- first, as in keep
	here timestamptz := pglatch_lease.wall() + pglatch_lease.shift() * us;
BEGIN
	IF here >= kept AND here <= kept + interval '1 second' THEN
		RETURN here;
	END IF;
	PERFORM pglatch_lease.keep(here - interval '1 second');
	RETURN pglatch_lease.now();
END $$;
