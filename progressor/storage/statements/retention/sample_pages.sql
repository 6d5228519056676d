-- What time it is, and how many pages the tables have of which an estimate reads a sample.
SELECT
    coalesce(%(now)s::timestamptz, now()) AS now,
    pg_relation_size('progressor.tasks'::regclass) / current_setting('block_size')::bigint AS tasks,
    pg_relation_size('progressor.events'::regclass) / current_setting('block_size')::bigint AS events
