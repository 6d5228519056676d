"""One run of an app's lifespan: its resources for as long as an engine serves.

Rule: the lifespan is entered before anything is served, and left after the last step, whatever has happened
in between. The code behind its `yield` always runs, and sees none of the errors of the engine.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any

from progressor.app.app import App, Lifespan
from progressor.app.resources import bind, check_names
from progressor.errors import InvalidRequest, LifespanFailed
from progressor.handlers.namespace import Namespace
from progressor.loggers import Logger, without_passwords

log = Logger("progressor.app")

_Context = AbstractAsyncContextManager[Mapping[str, Any] | None]


@asynccontextmanager
async def served(app: App) -> AsyncIterator[tuple[Namespace[Any], ...]]:
    """Enter the lifespan of an app, and yield its namespaces with their resources.

    LifespanFailed if the lifespan raises, on entering or on leaving. InvalidRequest if it yields no
    resources, or not all that handlers take.
    """
    if app.lifespan is None:
        yield bind(app.namespaces, {})
        return
    context = _context(app, app.lifespan)
    try:
        given = await context.__aenter__()
    except Exception as error:
        raise _failed(app.lifespan, error, "on entering") from error
    try:
        yield bind(app.namespaces, check_names(given, by=f"lifespan {_name(app.lifespan)}"))
    finally:
        await _leave(context, app.lifespan)


def _context(app: App, lifespan: Lifespan) -> _Context:
    try:
        context: Any = lifespan(app)
    except Exception as error:
        raise _failed(lifespan, error, "on entering") from error
    if not hasattr(type(context), "__aenter__") or not hasattr(type(context), "__aexit__"):
        raise InvalidRequest(
            f"lifespan {_name(lifespan)} must return an async context manager, not "
            f"{type(context).__name__}: decorate it with @asynccontextmanager",
            field="lifespan",
        )
    entered: _Context = context
    return entered


async def _leave(context: _Context, lifespan: Lifespan) -> None:
    try:
        await context.__aexit__(None, None, None)
    except Exception as error:
        raise _failed(lifespan, error, "on leaving") from error


def _failed(lifespan: Lifespan, error: Exception, when: str) -> LifespanFailed:
    name = _name(lifespan)
    text = without_passwords(f"{type(error).__name__}: {error}".rstrip(": ")) + _place(lifespan, error)
    log.error("lifespan failed", extra={"lifespan": name, "when": when, "error": text})
    log.debug("lifespan raised", extra={"lifespan": name}, exc_info=error)
    return LifespanFailed(f"lifespan {name} failed {when}: {text}")


def _name(lifespan: Lifespan) -> str:
    module = getattr(lifespan, "__module__", type(lifespan).__module__)
    return f"{module}.{getattr(lifespan, '__qualname__', type(lifespan).__qualname__)}"


def _place(lifespan: Lifespan, error: Exception) -> str:
    """Return the last line of the lifespan's own file on the way to the error, if one is known."""
    code = getattr(inspect.unwrap(lifespan), "__code__", None)
    lines = [
        line
        for frame, line in walk_tb(error.__traceback__)
        if code is not None and frame.f_code.co_filename == code.co_filename
    ]
    return f" ({Path(code.co_filename).name}, line {lines[-1]})" if code is not None and lines else ""
