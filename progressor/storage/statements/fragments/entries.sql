-- The entries of acts `i`, to be inserted into the audit.
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
