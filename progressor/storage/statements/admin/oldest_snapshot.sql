-- The age of the oldest transaction of this database that keeps VACUUM from removing dead rows; a VACUUM
-- itself does not count. Without the role pg_read_all_stats the age is unknown, because transactions of
-- other users are hidden.
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
