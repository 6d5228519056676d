-- Set each sequence that is behind the numbers in the tables to the highest of them. Others must not draw
-- numbers meanwhile: the tables are locked.
SELECT b.name, b.last, b.highest, setval(b.sequence, b.highest) AS now_at
FROM (
    -- include numbers_behind
) AS b
ORDER BY b.name
