-- The standbys that receive from this server, and how far each is behind; the role pg_read_all_stats sees it.
SELECT
    coalesce(nullif(r.application_name, ''), r.client_addr::text, 'a standby') AS name, r.state, r.sync_state,
    r.replay_lag AS lag,
    CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn) END::bigint AS behind
FROM pg_stat_replication AS r
ORDER BY behind DESC NULLS LAST, name
LIMIT %(limit)s::bigint
