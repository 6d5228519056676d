-- Lock as `lock_by_name` does, for one request: without ordering, which is the larger part of the work.
SELECT set_config('prg.locked', ARRAY[(
    SELECT p.process_no
    FROM progressor.processes AS p
    WHERE
        p.namespace_no = (
            SELECT n.namespace_no FROM progressor.namespaces AS n WHERE n.name = (%(namespace)s::text[])[1]
        )
        AND p.process_id = (%(process_id)s::text[])[1]
    FOR NO KEY UPDATE OF p
)]::text, TRUE) AS locked
