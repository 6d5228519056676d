-- A worker leaves; tasks that still run on it become zombies after a lease.
DELETE FROM progressor.workers WHERE worker_id = %(worker_id)s::bigint
