taken AS (
    DELETE FROM progressor.schedule AS s
    USING started AS c
    WHERE s.process_no = ANY (ARRAY[c.process_no]) AND s.task_id = c.task_id
)
