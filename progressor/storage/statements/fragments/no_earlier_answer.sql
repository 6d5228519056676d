NOT EXISTS (
    SELECT
    FROM
        -- include earlier_life
    OFFSET 0
)
