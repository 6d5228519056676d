-- deliver, behind prepare_call: a notice to a broken process becomes a task that is cancelled, as those are that
-- waited there when it broke. So it stands in the trace of its target, and can be run again. One that comes
-- while the process is being repaired stays in the outbox: it is tried again once the repair has ended.
INSERT INTO progressor.tasks (
    process_no, task_type, status, scheduled_time, finished_time,
    name, args, idempotency_key, request_hash, context, lease, error, trace
)
SELECT
    i.process_no, i.task_type::progressor.task_type, 'cancelled', p.now, p.now,
    i.name, i.args, i.idempotency_key, i.request_hash, i.context, i.lease, p.detail, i.trace
FROM (
    SELECT
        i.*,
        ((SELECT current_setting('prg.locked')::bigint[]))[i.ord] AS process_no
    FROM unnest(
        %(namespace)s::text[], %(process_id)s::text[], %(task_type)s::text[],
        %(name)s::text[], %(args)s::bytea[], %(idempotency_key)s::text[],
        %(request_hash)s::bytea[], %(context)s::bytea[], %(lease)s::bigint[], %(trace)s::text[]
    ) WITH ORDINALITY AS i (
        namespace, process_id, task_type,
        name, args, idempotency_key,
        request_hash, context, lease, trace, ord
    )
) AS i
CROSS JOIN LATERAL (
    SELECT p.detail, coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
    FROM progressor.processes AS p
    WHERE p.process_no = i.process_no AND p.status = 'error'
    OFFSET 0
) AS p
WHERE
    -- include idle_and_new
-- Numbers are drawn behind the sort: they are in the order in which the notices were sent.
ORDER BY i.ord
