-- fitting, before a page is read: how many tasks and events these processes have, each counted up to a bound.
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT FROM progressor.tasks AS t WHERE t.process_no = i.process_no LIMIT %(most)s::bigint
        ) AS t
    ) + (
        SELECT count(*)
        FROM (
            SELECT FROM progressor.events AS e WHERE e.process_no = i.process_no LIMIT %(most)s::bigint
        ) AS e
    ) AS many
FROM unnest(%(process_no)s::bigint[]) WITH ORDINALITY AS i (process_no, ord)
ORDER BY i.ord
