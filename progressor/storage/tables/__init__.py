"""The tables beside those of processes and their tasks: of operators, bulks, limits and the feed."""
