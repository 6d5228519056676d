"""Processes over HTTP: the API as an ASGI application, and a client for it. Needs the extra `http`."""

from progressor.http.client.client import HttpClient

__all__ = ["HttpClient"]
