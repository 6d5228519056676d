-- Every namespace that any worker ever served.
SELECT name FROM namespaces ORDER BY name
