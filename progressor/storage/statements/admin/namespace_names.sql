-- Every namespace that any worker ever served.
SELECT name FROM progressor.namespaces ORDER BY name
