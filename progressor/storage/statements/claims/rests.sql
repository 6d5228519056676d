-- How long a namespace with a rate is to rest until its next step may begin; no row if it need not.
SELECT r.next_at - at.now AS rest
FROM (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS at
CROSS JOIN progressor.rates AS r
WHERE
    r.namespace_no = (
        SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = %(namespace)s::text
    )
    AND r.next_at > at.now
