-- Take back a role that a handler took on: the tables are those of the engine's own role.
RESET ROLE
