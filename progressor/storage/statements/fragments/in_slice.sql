-- Whether a process is of the slice that is read: by a hash of its id, the same on every server.
(
    %(slices)s::bigint = 1
    OR get_byte(sha256(convert_to(i.process_id, 'UTF8')), 0) % %(slices)s::bigint = %(slice)s::bigint
)
