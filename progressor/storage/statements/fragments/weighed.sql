weighed AS (
    SELECT
        s.process_no, s.id, s.n, s.ring, s.namespace, s.process_id, s.kind,
        octet_length(s.value) AS bytes,
        substr(s.value, 1, %(head)s::bigint::integer) AS head,
        CASE WHEN s.is_stale THEN s.value END AS value,
        count(*) FILTER (WHERE s.is_stale) OVER before AS values_before,
        coalesce(sum(octet_length(s.value)) FILTER (WHERE s.is_stale) OVER before, 0) AS bytes_before
    FROM (
        SELECT
            s.*,
            %(writes)s::boolean
            AND coalesce(substr(s.value, 1, octet_length(s.prefix)) <> s.prefix, FALSE) AS is_stale
        FROM stored AS s
    ) AS s
    -- All values of a row, or none.
    WINDOW before AS (
        ORDER BY s.process_no, s.id, s.n GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)

SELECT
    w.process_no, w.id, w.n, w.ring, w.namespace, w.process_id, w.kind, w.bytes, w.head, w.value
FROM weighed AS w
WHERE w.values_before < %(most)s::bigint AND w.bytes_before < %(most_bytes)s::bigint
ORDER BY w.process_no, w.id, w.n
