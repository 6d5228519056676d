-- Note requests that are acts of operators, as `note_acts`. One counts if this transaction has made its task:
-- the row of the task is then of this transaction's number. A duplicate, or a refused one, leaves no entry.
-- include entries
WHERE
    i.act_id IS NOT NULL
    AND EXISTS (
        SELECT FROM progressor.tasks AS t
        WHERE
            t.process_no + 0 = ((SELECT current_setting('prg.locked', TRUE)::bigint[]))[i.ord]
            AND t.idempotency_key = i.idempotency_key
            AND t.xmin = pg_current_xact_id()::xid
        OFFSET 0
    )
ON CONFLICT (act_id) DO NOTHING
