-- A claim in groups, first: lock the groups, in the order of their numbers. Only other claims lock them, none of
-- which waits for anything else meanwhile.
SELECT g.group_no
FROM unnest(%(group_no)s::bigint[]) AS i (group_no)
JOIN progressor.groups AS g ON g.group_no = ANY (ARRAY[i.group_no])
ORDER BY i.group_no
FOR NO KEY UPDATE OF g
