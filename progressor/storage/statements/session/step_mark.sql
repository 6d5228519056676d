-- The mark of the transaction that a handler got, empty or NULL in any other.
SELECT current_setting('progressor.step', TRUE) AS mark
