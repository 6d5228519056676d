-- What time it is, here as everywhere: PostgreSQL's.
SELECT clock_timestamp() AS now
