-- sweep, first: give a row to each namespace whose code says how long it keeps what has ended.
INSERT INTO progressor.retention (namespace_no, next_at)
SELECT n.namespace_no, coalesce(%(now)s::timestamptz, now())
FROM progressor.namespaces AS n
WHERE
    n.options -> 'retention' <> 'null'
    AND NOT EXISTS (SELECT FROM progressor.retention AS r WHERE r.namespace_no = n.namespace_no)
ON CONFLICT DO NOTHING
