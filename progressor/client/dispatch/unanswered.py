"""Errors of callers to whom PostgreSQL gave no answer in time."""

from __future__ import annotations

from progressor.errors import StorageUnavailable
from progressor.inputs import given_key
from progressor.storage import Request


def not_answered(seconds: float, cause: str | None) -> StorageUnavailable:
    """Return the error of a read to which PostgreSQL gave no answer in time."""
    return StorageUnavailable(
        f"PostgreSQL did not answer within {seconds:g} s{_for(cause)}: nothing was changed, read again"
    )


def not_accepted(request: Request, seconds: float, cause: str | None) -> StorageUnavailable:
    key = given_key(request.idempotency_key)
    return StorageUnavailable(
        f"PostgreSQL did not take the request within {seconds:g} s{_for(cause)}; it may still go through: "
        f"ask again{'' if key is None else f' with idempotency_key={key!r}'}"
    )


def _for(cause: str | None) -> str:
    """Return, in brackets, why PostgreSQL is not available, for one a lack of connections."""
    return "" if cause is None else f" ({cause})"
