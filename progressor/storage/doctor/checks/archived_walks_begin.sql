-- No walk into an archive has been due for an hour: a zombie collector has an archive, and takes it.
-- Reads: retention.
-- One whose archive cannot be written is put off each time by some minutes, and its log says why.
SELECT n.name AS namespace, NULL::text AS process_id, NULL::bigint AS task_id, format('due since %%s', r.next_at) AS found
FROM progressor.retention AS r
JOIN progressor.namespaces AS n ON n.namespace_no = r.namespace_no
WHERE
    (%(namespace)s::text IS NULL OR n.name = %(namespace)s::text)
    AND CASE
        WHEN r.is_set IS TRUE THEN r.archive
        ELSE n.options #>> '{retention,archive}' = 'true'
    END
    AND r.next_at < coalesce(%(now)s::timestamptz, now()) - interval '1 hour'
