"""Authentication and scopes: tokens, certificates, origins, rates."""
