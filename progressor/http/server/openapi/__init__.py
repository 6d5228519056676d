"""The OpenAPI documents: of all processes, and of one namespace."""
