"""Connections to PostgreSQL: opened, pooled, pipelined, and retried by what an error means."""
