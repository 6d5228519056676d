"""Half an hour of mixed load at a fixed rate: what should stay flat, and whether it does."""
