"""Handlers: namespaces, decorated functions, and the code that runs them."""
