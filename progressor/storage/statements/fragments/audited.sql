-- The columns of entries `a` of the audit that are wanted, newest first, behind `before_at` and `before_id`.
SELECT
    to_hex(a.act_id) AS act_id, a.acted_at, a.verb, a.namespace, a.process_id, a.subject, a.detail, a.actor,
    a.way, a.origin, a.reason, a.role, a.address, a.application, a.act_id AS act_no
FROM progressor.audit AS a
WHERE
    (a.acted_at, a.act_id) < (%(before_at)s::timestamptz, %(before_id)s::bigint)
    AND a.acted_at >= coalesce(
        %(since)s::timestamptz, coalesce(%(now)s::timestamptz, now()) - %(ago)s::interval, '-infinity'
    )
    AND (%(verb)s::text IS NULL OR a.verb = %(verb)s::text)
    AND (%(namespaces)s::text[] IS NULL OR a.namespace LIKE ANY (%(namespaces)s::text[]))
