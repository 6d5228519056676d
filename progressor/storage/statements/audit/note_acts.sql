-- Note acts of operators, in the transaction of the acts, behind them. An act that is a request counts if
-- this transaction has made its task: its row is then of this transaction's number. Of a request that was
-- a duplicate, or was refused, no entry is made. A repetition after a lost answer finds its entry by act_id.
INSERT INTO progressor.audit (
    act_id, acted_at, verb, namespace, process_id, subject, detail, actor, way, origin, reason, role,
    address, application
)
SELECT
    i.act_id, coalesce(%(now)s::timestamptz, now()), i.verb, i.namespace, i.process_id, i.subject, i.detail,
    coalesce(i.actor, session_user::text), i.way, i.origin, i.reason, session_user::text,
    host(inet_client_addr()), nullif(current_setting('application_name'), '')
FROM unnest(
    %(act_id)s::bigint[], %(verb)s::text[], %(namespace)s::text[], %(process_id)s::text[],
    %(subject)s::text[], %(detail)s::text[], %(actor)s::text[], %(way)s::text[], %(origin)s::text[],
    %(reason)s::text[], %(idempotency_key)s::text[]
) WITH ORDINALITY AS i (
    act_id, verb, namespace, process_id, subject, detail, actor, way, origin, reason, idempotency_key, ord
)
WHERE
    i.act_id IS NOT NULL
    AND (
        i.idempotency_key IS NULL
        OR EXISTS (
            SELECT FROM progressor.tasks AS t
            WHERE
                t.process_no + 0 = ((SELECT current_setting('prg.locked', TRUE)::bigint[]))[i.ord]
                AND t.idempotency_key = i.idempotency_key
                AND t.xmin = pg_current_xact_id()::xid
            OFFSET 0
        )
    )
ON CONFLICT (act_id) DO NOTHING
