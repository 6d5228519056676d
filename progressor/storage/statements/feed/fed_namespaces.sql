-- All namespaces, and whether what their steps do is appended to the feed.
SELECT n.name, coalesce((n.options ->> 'feed')::boolean, FALSE) AS feeds
FROM progressor.namespaces AS n
ORDER BY n.name
