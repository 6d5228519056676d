-- Have the server notice a dead connection too: of a session, or of a transaction.
SELECT
    set_config('tcp_keepalives_idle', '15', %(is_local)s::boolean),
    set_config('tcp_keepalives_interval', '5', %(is_local)s::boolean),
    set_config('tcp_keepalives_count', '3', %(is_local)s::boolean)
