-- The replication slots, and how much of the write-ahead log each keeps on the disk.
SELECT
    s.slot_name AS name, s.active AS is_active, s.wal_status AS standing,
    CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) END::bigint AS kept
FROM pg_replication_slots AS s
ORDER BY kept DESC NULLS LAST, name
LIMIT %(limit)s::bigint
