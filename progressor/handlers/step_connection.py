"""The connection of a step whose handler asks for one: it reaches the handler through its context.

Rule: the handler has the connection for as long as it runs. Entering the scope opens the transaction, in
the handler's own thread if it has one; leaving it checks that the transaction can still be saved. An
annotation is recognised by the name of its class, so that neither SQLAlchemy nor psycopg is imported
for it.
"""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal

from progressor.errors import InvalidRequest
from progressor.model import WantedConnection

PARAMETER: Final = "connection"
"""The name of the keyword-only parameter, which no resource can have."""

Scope = AbstractAsyncContextManager[Any] | AbstractContextManager[Any]

_KNOWN: dict[tuple[str, str], tuple[Literal["psycopg", "connection", "session"], bool]] = {
    ("psycopg", "AsyncConnection"): ("psycopg", True),
    ("psycopg", "Connection"): ("psycopg", False),
    ("sqlalchemy.ext.asyncio.engine", "AsyncConnection"): ("connection", True),
    ("sqlalchemy.engine.base", "Connection"): ("connection", False),
    ("sqlalchemy.ext.asyncio.session", "AsyncSession"): ("session", True),
    ("sqlalchemy.orm.session", "Session"): ("session", False),
}
_ASYNC = "AsyncConnection or AsyncSession of SQLAlchemy, or psycopg.AsyncConnection"
_SYNC = "Connection or Session of SQLAlchemy, or psycopg.Connection"

_scope: ContextVar[Scope] = ContextVar("progressor_connection")


@contextmanager
def lending(scope: Scope) -> Iterator[None]:
    """Lend the connection of this scope to the handler that is called in the block."""
    token = _scope.set(scope)
    try:
        yield
    finally:
        _scope.reset(token)


def _lent() -> Any:
    try:
        return _scope.get()
    except LookupError:
        raise InvalidRequest(
            "the handler takes a connection, which an engine hands to it", field=PARAMETER
        ) from None


async def with_connection(target: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Call an async function with the connection of the step."""
    async with _lent() as connection:
        return await target(*args, connection=connection)


def with_blocking_connection(target: Callable[..., Any], *args: Any) -> Any:
    """Call a plain function with the connection of the step, in the thread of this call."""
    with _lent() as connection:
        return target(*args, connection=connection)


def wanted_connection(annotation: Any, *, name: str, is_async: bool) -> WantedConnection:
    """Return the connection that the function `name` asks for; InvalidRequest if it can get no such one."""
    annotated = typing.get_origin(annotation) or annotation
    for base in annotated.__mro__ if isinstance(annotated, type) else ():
        found = _KNOWN.get((base.__module__, base.__qualname__))
        # Only of a session is a subclass made; nobody else's connection class is.
        if found is None or (base is not annotated and found[0] != "session"):
            continue
        kind, is_for_async = found
        if is_for_async is is_async:
            return WantedConnection(kind, is_async, annotated)
    form = f"an async function: {_ASYNC}" if is_async else f"a plain function: {_SYNC}"
    raise InvalidRequest(
        f"{name}: connection must be annotated with a type of connection for {form}", field=PARAMETER
    )
