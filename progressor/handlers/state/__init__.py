"""States: read as their declared types and written, with fields kept that a type does not know."""
