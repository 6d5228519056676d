"""Connections to PostgreSQL: opened, pooled, pipelined, retried."""
