"""One OS process on one database: its connections, signals, and waiting callers."""
