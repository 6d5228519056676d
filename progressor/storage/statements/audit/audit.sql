-- A page of the audit, newest first: of all namespaces, or of one.
-- include audited
    AND (%(namespace)s::text IS NULL OR a.namespace = %(namespace)s::text)
    AND (%(process_id)s::text IS NULL OR a.process_id = %(process_id)s::text)
ORDER BY a.acted_at DESC, a.act_id DESC
LIMIT %(limit)s::bigint
