-- How many steps `rate` (its interval, its burst, when the next one may begin) admits at a moment that is read
-- behind the lock on its row: GCRA. What was not used is kept up to the burst. A time beyond the next interval
-- is of a slower rate, or of a clock that was set back: then one may begin.
CROSS JOIN LATERAL (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS clock
CROSS JOIN LATERAL (
    SELECT
        (
            extract(
                epoch FROM clock.now + rate.step - CASE
                    WHEN rate.next_at > clock.now + rate.step THEN clock.now
                    ELSE greatest(rate.next_at, clock.now - rate.step * (rate.burst - 1))
                END
            ) * 1000000
        )::bigint / (extract(epoch FROM rate.step) * 1000000)::bigint AS begins
) AS pace
