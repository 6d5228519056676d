"""Workers: they claim tasks, run steps in slots, and send heartbeats."""
