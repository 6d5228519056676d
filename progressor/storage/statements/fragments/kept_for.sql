-- A part of FROM: for how long a namespace `n` with the row `r` of retention keeps what has ended: as an
-- operator has set it, else as its code says, in `said`. NULL: for ever. Nothing here reads what code says:
-- another release may have written it, and a cast that fails would end the walks of all namespaces.
SELECT
    coalesce(r.is_set, FALSE) AS is_set, r.tasks, r.keys, r.events_for, r.events_last,
    CASE
        WHEN r.is_set IS TRUE THEN r.archive ELSE coalesce(n.options #>> '{retention,archive}' = 'true', FALSE)
    END AS archive,
    CASE WHEN r.is_set IS NOT TRUE THEN nullif(n.options -> 'retention', 'null')::text END AS said
