"""Runs the steps: slots, claims, the step itself, the sign of life."""
