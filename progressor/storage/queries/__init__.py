"""Reads of processes: pages bounded in bytes, in SQLAlchemy Core."""
