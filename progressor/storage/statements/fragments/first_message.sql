-- The message `o` is the first of those that its sender sent to its target and that are not delivered: only
-- such a one may be delivered, so that they arrive in the order in which they were sent.
NOT EXISTS (
    SELECT
    FROM progressor.outbox AS b
    WHERE
        b.process_no + 0 = o.process_no AND b.sent_no < o.sent_no
        AND b.namespace = o.namespace AND b.process_id = o.process_id
    OFFSET 0
)
