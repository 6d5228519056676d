-- Have the server notice a dead connection too.
SELECT
    set_config('tcp_keepalives_idle', '15', FALSE),
    set_config('tcp_keepalives_interval', '5', FALSE),
    set_config('tcp_keepalives_count', '3', FALSE)
