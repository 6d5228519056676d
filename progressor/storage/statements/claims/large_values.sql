-- A claim, second, of tasks with large values, which their worker holds by now: return the values, in the
-- order of the claim, as many as fit into `bytes`, and those of one task at least. The size of a value is
-- known without reading it.
SELECT v.process_no, v.args, v.context, v.aux_state
FROM (
    SELECT
        i.ord, i.process_no, t.args, t.context, p.aux_state,
        sum(
            coalesce(octet_length(t.args), 0) + coalesce(octet_length(t.context), 0)
            + coalesce(octet_length(p.aux_state), 0)
        ) OVER (ORDER BY i.ord ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM unnest(%(process_no)s::bigint[], %(task_id)s::bigint[], %(birth)s::bigint[])
        WITH ORDINALITY AS i (process_no, task_id, birth, ord)
    CROSS JOIN LATERAL (
        SELECT t.args, t.context
        FROM progressor.tasks AS t
        WHERE t.process_no = i.process_no AND t.task_id = i.task_id
        OFFSET 0
    ) AS t
    CROSS JOIN LATERAL (
        SELECT p.aux_state
        FROM progressor.processes AS p
        WHERE p.process_no = i.process_no AND p.birth IS NOT DISTINCT FROM i.birth
        OFFSET 0
    ) AS p
) AS v
WHERE coalesce(v.bytes_before, 0) < %(bytes)s::bigint
ORDER BY v.ord
