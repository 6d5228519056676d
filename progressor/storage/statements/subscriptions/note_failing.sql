-- What comes next in a slice fails: note it for operators, if the lease still holds, and see whether one
-- wants it parked.
UPDATE progressor.subscription_slices AS s
SET
    failing_since = coalesce(s.failing_since, now()), attempts = %(attempts)s::bigint::integer,
    error = %(error)s::text
WHERE
    s.name = %(name)s::text AND s.slice = %(slice)s::bigint AND s.lease = %(lease)s::bigint
RETURNING s.parks
