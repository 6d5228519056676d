"""The wire format: headers, paths, problems. Needs no HTTP library."""
