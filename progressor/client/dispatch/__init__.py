"""Requests on their way to an answer: accepted in batches, and run here if a slot is free."""
