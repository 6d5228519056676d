"""Namespaces: their load, their options, their pause, and for how long they keep things."""
