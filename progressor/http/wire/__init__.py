"""The wire format of the API: headers, paths, problems. Needs neither FastAPI nor an HTTP client."""
