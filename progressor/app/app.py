"""The app: namespaces, the lifespan that yields the resources of their handlers, and middleware.

Rule: an app says what is served, and holds nothing that runs. Each engine that serves it has a lifespan of
its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from progressor.app.middleware import Middleware, check_middleware
from progressor.app.projection import Projection
from progressor.errors import InvalidRequest
from progressor.handlers.namespace import Namespace

Lifespan = Callable[["App"], AbstractAsyncContextManager[Mapping[str, Any] | None]]


class App:
    """Namespaces with what their handlers need, for an engine, a worker or a client.

    `lifespan` is a function of the app, decorated with `@asynccontextmanager`. It yields the resources by
    name, or None. Each engine enters it before it serves anything, and leaves it after the last step; a
    client never does. `middleware` runs around every handler, the first of the list outermost. One of the
    engines at a time runs each of the `projections`.

    InvalidRequest names an argument that cannot be used.
    """

    def __init__(
        self,
        namespaces: Iterable[Namespace[Any]],
        lifespan: Lifespan | None = None,
        middleware: Iterable[Middleware] = (),
        projections: Iterable[Projection] = (),
    ) -> None:
        self.namespaces: Final = _check_namespaces(namespaces)
        self.lifespan: Final = _check_lifespan(lifespan)
        self.middleware: Final = check_middleware(middleware)
        self.projections: Final = _check_projections(projections)

    def __repr__(self) -> str:
        return f"<App {', '.join(each.name for each in self.namespaces)}>"


def app_of(given: App | Iterable[Namespace[Any]]) -> App:
    """Return an app as it is, or the app of some namespaces; InvalidRequest for anything else."""
    return given if isinstance(given, App) else App(given)


def _check_namespaces(given: object) -> tuple[Namespace[Any], ...]:
    namespaces = tuple(given) if isinstance(given, Iterable) else (given,)
    found = tuple(each for each in namespaces if isinstance(each, Namespace))
    if not isinstance(given, Iterable) or len(found) < len(namespaces):
        kind = type(given).__name__
        raise InvalidRequest(
            f"namespaces must be a list of Namespace, [billing] say, or an App, not {kind}",
            field="namespaces",
        )
    _refuse_twice("namespaces", [namespace.name for namespace in found])
    return found


def _check_projections(given: Iterable[Projection]) -> tuple[Projection, ...]:
    projections = tuple(given)
    for each in projections:
        if not isinstance(each, Projection):
            raise InvalidRequest(
                f"projections must be a list of Projection, not of {type(each).__name__}",
                field="projections",
            )
        # Whoever forgets the function hears of it here.
        _ = each.wanted
    _refuse_twice("projections", [each.subscription for each in projections])
    return projections


def _refuse_twice(field: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(f"two {field} have the same name: {', '.join(twice)}", field=field)


def _check_lifespan(given: Any) -> Lifespan | None:
    if given is None:
        return None
    is_bare = inspect.isgeneratorfunction(given) or inspect.isasyncgenfunction(given)
    if not callable(given) or is_bare or inspect.iscoroutinefunction(given):
        raise InvalidRequest(
            "lifespan must be a function of the app that returns an async context manager: "
            "decorate it with @asynccontextmanager",
            field="lifespan",
        )
    lifespan: Lifespan = given
    return lifespan
