-- Rows of the feed wait for their positions: lock its head, so that one session at a time gives some, and
-- note that it is locked. number_feed comes next, as a statement of its own: its snapshot is younger than
-- the lock, so it sees all that others have numbered. Where no row waits, nothing is locked and nothing is
-- written, unless `always`: then no other session gives a position in the rest of this transaction.
SELECT set_config('prg.feed', 'locked', TRUE)
FROM (
    SELECT
    FROM progressor.feed_head AS h
    WHERE
        %(always)s::boolean
        OR EXISTS (SELECT FROM progressor.feed AS f WHERE f.position IS NULL OFFSET 0)
    FOR NO KEY UPDATE OF h
) AS head
