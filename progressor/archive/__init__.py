"""Archives: processes, and what retention deletes of them, as lines of JSON."""
