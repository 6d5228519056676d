-- A look before a claim in groups in which steps have ended: those that have room and tasks that wait for it. A
-- claim would lock each of them, and lock for nothing where nothing waits.
-- [unrated
SELECT g.group_no
-- unrated]
-- [rated
SELECT
    g.group_no,
    coalesce(pace.begins, 1) > 0 AS has_room,
    -- How long it is to rest by its rate alone.
    CASE WHEN pace.begins = 0 THEN g.next_at - clock.now END AS rest
-- rated]
FROM unnest(%(group_no)s::bigint[]) AS i (group_no)
CROSS JOIN LATERAL (
    -- [unrated
    SELECT g.group_no, g.group_limit FROM progressor.groups AS g WHERE g.group_no = i.group_no OFFSET 0
    -- unrated]
    -- [rated
    SELECT g.* FROM progressor.groups AS g WHERE g.group_no = i.group_no OFFSET 0
    -- rated]
) AS g
-- include room
-- [rated
-- include room_by_rate
-- rated]
CROSS JOIN LATERAL (
    SELECT FROM progressor.schedule AS s
    WHERE
        s.namespace_no = (
            SELECT n.namespace_no FROM progressor.namespaces AS n
            WHERE n.name = %(namespace)s::text AND NOT n.paused
        )
        AND s.group_no = g.group_no AND s.held_time IS NOT NULL
    ORDER BY s.held_time
    LIMIT 1
) AS first
WHERE room.tasks > 0
ORDER BY g.group_no
