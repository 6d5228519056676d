-- A page of the audit of all lives of one process, newest first: a range of the index on processes.
-- include audited
    AND a.namespace = %(namespace)s::text
    AND a.process_id = %(process_id)s::text
ORDER BY a.acted_at DESC, a.act_id DESC
LIMIT %(limit)s::bigint
