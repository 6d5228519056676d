"""The feed: what steps append to it, and what readers find there."""
