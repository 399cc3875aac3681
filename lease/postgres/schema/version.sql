
INSERT INTO pglatch_lease.store AS s (schema_version, floor, timeline, system_identifier, relation)
	SELECT 4, 0, pglatch_lease.timeline(), c.system_identifier, 'pglatch_lease.store'::pg_catalog.regclass FROM pg_catalog.pg_control_system() AS c
	ON CONFLICT (one) DO UPDATE SET schema_version = excluded.schema_version WHERE s.schema_version < excluded.schema_version;
