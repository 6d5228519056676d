"""The console over a large database: how long each of its pages takes."""
