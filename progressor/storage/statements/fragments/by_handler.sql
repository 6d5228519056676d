-- A condition: the task `t` that broke a process is of the handler that a filter names, by its call or its type,
-- or by both, as failures are shown: "timeout dunning".
%(handler)s::text IS NULL
OR %(handler)s::text IN (
    CASE WHEN t.task_type IN ('call', 'notify') THEN t.name ELSE t.task_type::text END,
    concat_ws(' ', t.task_type::text, t.name)
)
