"""The API as an ASGI application, and the server that runs it."""
