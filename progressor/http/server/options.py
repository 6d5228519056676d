"""Options of a server of the API."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The options of an API; times are in seconds."""

    wait: float = 30.0
    """The wait for an answer, unless the request states another one."""
    longest_wait: float = 60.0
    """The longest wait for an answer, whatever the request states."""
    drain: float = 5.0
    """The wait for answers once the server was told to stop."""
    max_value_bytes: int = 8 << 20
    """The largest body in bytes: as large as one value that the database takes."""
    max_import_bytes: int = 32 << 20
    """The largest body of an import, in bytes."""
    max_page_bytes: int = 16 << 20
    """The bytes of states, events, arguments or answers on one page; a single entry may have more."""
    max_memory_bytes: int = 192 << 20
    """The memory for the pages and bodies of all requests together, in bytes."""
    max_requests: int = 1000
    """The most requests that are under way here, those that wait for answers among them."""
    max_watches: int = 1000
    """The most streams that are open here, of watches and of the feed, beside the requests."""
    max_connections: int = 2000
    """The most connections that are open; fewer where the limit of file descriptors is lower."""
    max_log_lines: int = 50
    """The most lines per second about answers below 500; the others are counted."""
    require_idempotency_key: bool = False
    """Refuse calls, notices, repairs and changes of timers without an idempotency key."""
