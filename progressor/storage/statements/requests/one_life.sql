-- prepare_init, second: one key starts one life. The first statement looked for keys of earlier lives, but
-- a life that ended while it waited for the name is seen only here: inserting its row again fails the
-- transaction, which is then repeated.
INSERT INTO progressor.removed_processes (process_no, kept_until)
SELECT r.process_no, now()
FROM unnest(%(namespace)s::text[], %(process_id)s::text[], %(idempotency_key)s::text[], %(lease)s::bigint[])
    AS i (namespace, process_id, idempotency_key, lease)
CROSS JOIN LATERAL (
    SELECT r.process_no
    FROM
        -- include earlier_life
    OFFSET 0
) AS r
CROSS JOIN LATERAL (
    SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = i.namespace OFFSET 0
) AS n
CROSS JOIN LATERAL (
    SELECT p.process_no
    FROM progressor.processes AS p
    WHERE p.namespace_no = n.namespace_no AND p.process_id = i.process_id
    OFFSET 0
) AS p
CROSS JOIN LATERAL (
    SELECT
    FROM progressor.tasks AS t
    WHERE
        t.process_no + 0 = p.process_no AND t.idempotency_key = i.idempotency_key
        AND t.lease = i.lease
    OFFSET 0
) AS made
WHERE
    -- include lived_before
