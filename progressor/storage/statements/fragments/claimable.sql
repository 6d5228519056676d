s.namespace_no = (
    SELECT n.namespace_no FROM progressor.namespaces AS n
    WHERE n.name = %(namespace)s::text AND NOT n.paused
)
AND s.claimable
-- `claimable` means that nothing runs. If it is ever wrong, no other process is harmed.
AND NOT EXISTS (
    SELECT FROM progressor.running AS r WHERE r.process_no = s.process_no OFFSET 0
)
