"""The doctor: every invariant of the tables, asked one by one."""
