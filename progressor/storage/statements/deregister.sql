-- A worker leaves; what it still runs becomes a zombie after the age of a lease.
DELETE FROM progressor.workers WHERE worker_id = %(worker_id)s::bigint
