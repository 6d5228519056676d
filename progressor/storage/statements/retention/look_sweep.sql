-- sweep, fourth: the next processes of a walk, in the order of their creation. Those that a bulk repairs are
-- passed over.
SELECT
    p.process_no, p.process_id, p.created_at, p.corrupted_by, coalesce(p.first_event_id, 1) AS first_event_id,
    p.last_event_id,
    p.process_no = ANY (ARRAY(SELECT b.process_no FROM progressor.bulk_repairs AS b)) AS is_in_bulk
FROM progressor.processes AS p
WHERE
    p.namespace_no = %(namespace_no)s::bigint
    AND p.created_at > '-infinity'
    AND (p.created_at, p.process_no) > (%(cursor_at)s::timestamptz, %(cursor_no)s::bigint)
ORDER BY p.namespace_no, p.created_at, p.process_no
LIMIT %(looks)s::bigint
