"""The engine beside the field: `python -m benchmarks`, or `make bench`."""
