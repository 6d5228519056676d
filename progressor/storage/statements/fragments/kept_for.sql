-- A part of FROM: for how long a namespace `n` with the row `r` of retention keeps what has ended: as an
-- operator has set it, else as its code says. NULL: for ever.
SELECT
    coalesce(r.is_set, FALSE) AS is_set,
    CASE WHEN r.is_set THEN r.tasks ELSE (n.options #>> '{retention,tasks}')::interval END AS tasks,
    CASE WHEN r.is_set THEN r.keys ELSE (n.options #>> '{retention,keys}')::interval END AS keys,
    CASE
        WHEN r.is_set THEN r.events_for
        WHEN jsonb_typeof(n.options #> '{retention,events}') = 'string'
            THEN (n.options #>> '{retention,events}')::interval
    END AS events_for,
    CASE
        WHEN r.is_set THEN r.events_last
        WHEN jsonb_typeof(n.options #> '{retention,events}') = 'number'
            THEN (n.options #>> '{retention,events}')::bigint
    END AS events_last
