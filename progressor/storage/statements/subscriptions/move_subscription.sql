-- After lock_subscription: let all slices go on from one place. Their readers lose them, and take them anew.
UPDATE progressor.subscription_slices AS s
SET
    lease = s.lease + 1, reader_id = NULL,
    position = %(position)s::bigint, item = %(item)s::bigint, n = %(n)s::bigint, mark = %(mark)s::bigint,
    epoch = %(epoch)s::bigint, walk = %(walk)s::bigint, walk_n = %(walk_n)s::bigint,
    committed_at = now(), failing_since = NULL, attempts = 0, error = NULL, parks = FALSE
WHERE s.name = %(name)s::text
