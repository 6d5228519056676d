"""One OS process on one database: what it talks with, whom it wakes, who waits for which reply."""
