-- The process of `i` had an earlier life, whose answers may be kept. Most names had none: this one look costs
-- less than those into its answers.
EXISTS (
    SELECT FROM progressor.removed_processes AS r
    WHERE r.namespace = i.namespace AND r.process_id = i.process_id
    OFFSET 0
)
