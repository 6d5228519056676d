-- A reader has ended: its share is that of others.
DELETE FROM progressor.subscription_readers AS r
WHERE r.name = %(name)s::text AND r.reader_id = %(reader_id)s::bigint
