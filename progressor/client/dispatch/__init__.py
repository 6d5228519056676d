"""Requests on their way to an answer: accepted in batches, run here if a slot is free."""
