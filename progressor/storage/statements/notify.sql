-- Send hints. In a transaction of its own: NOTIFY holds a database-wide lock until its commit.
SELECT pg_notify(i.channel, i.payload)
FROM unnest(%(channel)s::text[], %(payload)s::text[]) AS i (channel, payload)
