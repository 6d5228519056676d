-- The largest tables: their sizes with indexes, their rows and dead rows as PostgreSQL has counted them, and
-- when they were last vacuumed.
SELECT
    s.relname AS name, pg_total_relation_size(s.relid) AS size, s.n_live_tup AS live_rows,
    s.n_dead_tup AS dead_rows, greatest(s.last_autovacuum, s.last_vacuum) AS vacuumed_at
FROM pg_class AS known
INNER JOIN pg_class AS c ON c.relnamespace = known.relnamespace
INNER JOIN pg_stat_user_tables AS s ON s.relid = c.oid
WHERE known.oid = 'progressor.processes'::regclass
ORDER BY size DESC, name
LIMIT %(limit)s::bigint
