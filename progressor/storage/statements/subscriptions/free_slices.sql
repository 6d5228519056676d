-- Give slices back that a reader holds: those of these numbers, or all.
UPDATE progressor.subscription_slices AS s
SET reader_id = NULL
WHERE
    s.name = %(name)s::text AND s.reader_id = %(reader_id)s::bigint
    AND (%(slices)s::bigint[] IS NULL OR s.slice = ANY (%(slices)s::bigint[]))
