-- Every process belongs to a namespace that exists.
-- Reads: all processes, namespaces.
-- Its name is known nowhere else: a check of one namespace does not find it.
SELECT
    n.name AS namespace, p.process_id, NULL::bigint AS task_id,
    format('process %%s is of namespace %%s, which is not there', p.process_no, p.namespace_no) AS found
FROM progressor.processes AS p
LEFT JOIN progressor.namespaces AS n ON n.namespace_no = p.namespace_no
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND n.namespace_no IS NULL
