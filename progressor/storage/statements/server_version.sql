-- Which PostgreSQL this is.
SELECT current_setting('server_version') AS server_version
