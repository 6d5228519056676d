-- Send hints, in a transaction of its own: NOTIFY holds a database-wide lock until the commit, so that
-- commit does not wait for fsync either. A hint is lost with the server anyway, and nothing else is
-- written.
SELECT pg_notify(i.channel, i.payload)
FROM
    (SELECT set_config('synchronous_commit', 'off', TRUE) AS done) AS at,
    unnest(%(channel)s::text[], %(payload)s::text[]) AS i (channel, payload)
WHERE at.done = 'off'
