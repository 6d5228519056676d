-- The mark of a row of the feed, of what no other row has: on a server that has lost the row, another one
-- gets its position.
f.feed_id + (extract(EPOCH FROM f.appended_at) * 1000000)::bigint AS mark
