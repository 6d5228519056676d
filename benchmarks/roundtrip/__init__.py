"""The round trip of many processes: exported, imported, compared row by row, and their timers fired."""
