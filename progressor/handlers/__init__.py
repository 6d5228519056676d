"""The user's side of a step: namespaces, decorated functions, and what runs them."""
