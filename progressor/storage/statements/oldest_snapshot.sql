-- For how long the oldest transaction of this database keeps rows that are gone from being cleared away; a
-- VACUUM does not. Without the role pg_read_all_stats those of other users are not shown: then it is not known.
SELECT
    CASE
        WHEN pg_has_role('pg_read_all_stats', 'USAGE')
            THEN coalesce(max(extract(EPOCH FROM clock_timestamp() - o.begun) * 1000), 0)::float8
    END AS age_ms
FROM (
    SELECT a.xact_start AS begun
    FROM pg_stat_activity AS a
    WHERE
        a.datname = current_database() AND a.pid <> pg_backend_pid()
        AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
        AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum AS v WHERE v.pid = a.pid)
    UNION ALL
    SELECT p.prepared FROM pg_prepared_xacts AS p WHERE p.database = current_database()
) AS o
