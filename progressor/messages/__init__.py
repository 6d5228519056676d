"""Messages: what a step sends to other processes, as values that are whole by themselves."""
