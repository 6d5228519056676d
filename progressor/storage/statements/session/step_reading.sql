-- How the statements that save a step are read, whatever its handler has set: texts are in UTF8, and
-- functions, types and operators are those of PostgreSQL. Here it is named too: the path may still be the
-- handler's.
SELECT
    pg_catalog.set_config('client_encoding', 'UTF8', TRUE),
    pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', TRUE)
