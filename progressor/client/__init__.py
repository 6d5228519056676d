"""Clients: requests, reads and administration, in Python."""
