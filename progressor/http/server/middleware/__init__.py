"""Layers around every request: the access log, and the bound on concurrent requests."""
