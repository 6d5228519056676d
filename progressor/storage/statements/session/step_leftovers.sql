-- The statements that drop what a handler has prepared, in SQL or through its driver; NULL if it has left
-- nothing. Those of the engine have the prefix.
SELECT string_agg(format('DEALLOCATE %I', name), '; ') AS drops
FROM pg_prepared_statements
WHERE from_sql OR NOT starts_with(name, 'progressor.')
