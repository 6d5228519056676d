SELECT n.namespace_no, i.name, i.prefix
FROM unnest(%(namespace)s::text[], %(prefix)s::bytea[]) AS i (name, prefix)
INNER JOIN progressor.namespaces AS n ON n.name = i.name
