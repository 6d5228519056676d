-- An earlier life `r` of the process that has a task of the key of `i`. Without its birth, which would cost a
-- node of the plan for each half.
(
    SELECT r.process_no
    FROM progressor.removed_processes AS r
    WHERE r.namespace = i.namespace AND r.process_id = i.process_id AND NOT r.by_key
    UNION ALL
    SELECT k.process_no
    FROM progressor.kept_answers AS k
    WHERE
        k.namespace = i.namespace AND k.process_id = i.process_id
        AND k.idempotency_key = i.idempotency_key
) AS r
CROSS JOIN LATERAL (
    SELECT FROM progressor.tasks AS t
    WHERE t.process_no + 0 = r.process_no AND t.idempotency_key = i.idempotency_key
    OFFSET 0
) AS t
