"""What a server of the API may be told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How an API answers; times in seconds."""

    wait: float = 30.0
    """How long an answer is waited for, unless the request says so itself."""
    longest_wait: float = 60.0
    """How long it is waited for at most, whatever the request says."""
    drain: float = 5.0
    """How long answers are still waited for once the server was told to stop."""
    max_value_bytes: int = 8 << 20
    """How large a body may be: what the database takes as one value."""
    max_import_bytes: int = 32 << 20
    """How large the body of an import may be."""
    max_page_bytes: int = 16 << 20
    """How many bytes of states, events, arguments or answers one page has; one entry may have more."""
    max_memory_bytes: int = 192 << 20
    """How much memory the pages and bodies of all requests may have together."""
    max_requests: int = 1000
    """How many requests may be under way here, those that wait for answers among them."""
    max_connections: int = 2000
    """How many connections may be open; fewer where the limit of file descriptors is lower."""
    require_idempotency_key: bool = False
    """Whether calls, notices, repairs and changes of timers without a key are refused."""
