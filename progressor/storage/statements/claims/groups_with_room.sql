-- A look before a claim in groups: of the next `groups` ones behind `after` in which tasks wait for room, which
-- have some. The rows of a full group are not read, but for the first.
WITH RECURSIVE
-- include waiting_groups

SELECT l.group_no, room.tasks > 0 AS has_room
FROM (SELECT f.group_no FROM found AS f LIMIT %(groups)s::bigint) AS l
CROSS JOIN LATERAL (
    SELECT g.group_no, g.group_limit FROM progressor.groups AS g WHERE g.group_no = l.group_no OFFSET 0
) AS g
-- include room
ORDER BY l.group_no
