"""Everything that talks to PostgreSQL: tables, statements, operations, reads, signals."""
