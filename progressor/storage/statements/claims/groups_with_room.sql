-- A look before a claim in groups: of the next `groups` ones behind `after` in which tasks wait for room, which
-- have some. The rows of a full group are not read, but for the first.
WITH RECURSIVE
-- include waiting_groups

-- [unrated
SELECT l.group_no, room.tasks > 0 AS has_room
-- unrated]
-- [rated
SELECT
    l.group_no,
    room.tasks > 0 AND coalesce(pace.begins, 1) > 0 AS has_room,
    -- How long it is to rest by its rate alone.
    CASE WHEN room.tasks > 0 AND pace.begins = 0 THEN g.next_at - clock.now END AS rest
-- rated]
FROM (SELECT f.group_no FROM found AS f LIMIT %(groups)s::bigint) AS l
CROSS JOIN LATERAL (
    -- [unrated
    SELECT g.group_no, g.group_limit FROM progressor.groups AS g WHERE g.group_no = l.group_no OFFSET 0
    -- unrated]
    -- [rated
    SELECT g.* FROM progressor.groups AS g WHERE g.group_no = l.group_no OFFSET 0
    -- rated]
) AS g
-- include room
-- [rated
-- include room_by_rate
-- rated]
ORDER BY l.group_no
