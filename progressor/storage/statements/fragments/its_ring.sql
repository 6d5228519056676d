LEFT JOIN LATERAL (
    SELECT p.namespace_no, p.process_id
    FROM progressor.processes AS p
    WHERE p.process_no = i.process_no
    OFFSET 0
) AS p ON TRUE
LEFT JOIN (
    -- include rings
) AS r ON r.namespace_no = p.namespace_no
