-- Have what fails in a subscription parked, so that the rest goes on: its readers do it at the next attempt.
WITH wanted AS (
    UPDATE progressor.subscription_slices AS s
    SET parks = TRUE
    WHERE s.name = %(name)s::text AND s.failing_since IS NOT NULL
    RETURNING s.slice
)

SELECT count(*) AS many FROM wanted
