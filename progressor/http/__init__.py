"""The HTTP API and its client. Needs the extra `http`."""

from typing import TYPE_CHECKING

from progressor.exports import exports

if TYPE_CHECKING:
    from progressor.http.client.client import HttpClient as HttpClient
else:
    __all__, __getattr__, __dir__ = exports(__name__, {"client.client": "HttpClient"})
