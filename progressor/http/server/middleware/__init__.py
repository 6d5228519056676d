"""Middleware around every request: the access log."""
