"""Watches: one process as it changes, for a consumer outside of it."""
