-- The server, as far as every role may see it: its version and start, the connections of clients and how
-- many there may be, and the revision of the schema.
SELECT
    current_setting('server_version') AS server_version,
    pg_postmaster_start_time() AS started_at,
    (
        SELECT count(*) FROM pg_stat_activity AS a
        WHERE a.datid IS NOT NULL AND coalesce(a.backend_type, 'client backend') = 'client backend'
    ) AS connections,
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        AS most_connections,
    (SELECT v.version_num FROM progressor.alembic_version AS v LIMIT 1) AS revision
