-- No earlier life of the process of `i` has a task of its key.
NOT (
    -- include lived_before
    AND EXISTS (
        SELECT
        FROM
            -- include earlier_life
        OFFSET 0
    )
)
