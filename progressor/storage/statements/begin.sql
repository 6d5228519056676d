-- Isolation and access are stated with it: where sessions keep nothing, nothing else could any more.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE NOT DEFERRABLE
