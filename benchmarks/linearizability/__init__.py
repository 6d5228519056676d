"""Registers and sets under faults, and a judge of what their callers were answered."""
