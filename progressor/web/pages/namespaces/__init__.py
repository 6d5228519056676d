"""Namespaces: their load and its charts, their options, their pause, and for how long they keep things."""
