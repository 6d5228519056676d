"""Callers and scopes: the only place where a request is allowed or refused for its caller.

Rule: a route is declared with the scope that it needs, by `require_scope`; one without it cannot be built.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Protocol

from fastapi import Depends, Request

from progressor.http.server.problems import Refusal
from progressor.http.wire.paths import text_of
from progressor.http.wire.problems import FORBIDDEN

Scope = Literal[
    "processes:read",
    "state:read",
    "processes:start",
    "processes:call",
    "processes:repair",
    "processes:remove",
    "processes:put",
    "bulk",
    "admin",
    "errors:read",
]
# Stands in place of a scope on routes for everybody, such as the probes.
PUBLIC = "public"
REALM = 'Bearer realm="progressor"'


class Caller(Protocol):
    """The caller of a request."""

    @property
    def name(self) -> str:
        """Return the name of the caller in logs: never a secret."""
        ...

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return the patterns of the namespaces that the caller sees: its lists show these alone."""
        ...

    def may(self, scope: Scope, namespace: str | None) -> bool:
        """Return whether the caller has the scope in this namespace; None: in those that it sees."""
        ...


class Access(Protocol):
    """The authentication of callers."""

    async def begin(self, host: str) -> None:
        """Raise InvalidRequest if callers could ask on this address who must not."""
        ...

    async def close(self) -> None:
        """Close the connections that authentication has opened."""
        ...

    async def admit(self, request: Request, scope: Scope, namespace: str | None) -> Caller:
        """Return the caller of a request; raise Refusal if it is not allowed."""
        ...


def require(caller: Caller, scope: Scope, namespace: str | None) -> None:
    """Raise Refusal (403), which names what the caller lacks, unless it has the scope."""
    if caller.may(scope, namespace):
        return
    if not caller.namespaces:
        detail = "you may see no namespace at all"
    elif not caller.may(scope, None):
        detail = f"this needs the scope {scope}"
    else:
        detail = f"namespace {namespace!r} is none of those that you may see"
    challenge = f'{REALM}, error="insufficient_scope", scope="{scope}"'
    members = {"scope": scope} | ({} if namespace is None else {"namespace": namespace})
    raise Refusal(FORBIDDEN, detail, headers={"WWW-Authenticate": challenge}, members=members)


def seen_by(caller: Caller) -> tuple[str, ...] | None:
    """Return the patterns of the namespaces that are listed for this caller; None: all."""
    return None if "*" in caller.namespaces else caller.namespaces


class Anybody:
    """A caller of whom nothing is known, and who may do everything."""

    name = "anybody"
    namespaces = ("*",)

    def may(self, scope: Scope, namespace: str | None) -> bool:  # noqa: ARG002 - the protocol's signature
        return True


class OpenAccess:
    """Access for tests: everybody may do everything, from anywhere."""

    async def begin(self, host: str) -> None:
        """Refuse nothing."""

    async def close(self) -> None:
        """Close nothing: nothing was opened."""

    async def admit(self, request: Request, scope: Scope, namespace: str | None) -> Caller:  # noqa: ARG002 - the protocol's signature
        return Anybody()


class RequireScope:
    """The dependency of a route on its scope; its value is the caller."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    async def __call__(self, request: Request) -> Caller:
        access: Access = request.app.state.access
        segment = request.path_params.get("namespace")
        namespace = None if segment is None else text_of(segment, "namespace")
        caller = await access.admit(request, self.scope, namespace)
        request.state.caller = caller
        place = getattr(request.state, "place", None)
        if place is not None:
            # Only the routes of health have no place.
            place.claim(caller.name)
        return caller


def require_scope(scope: Scope) -> Any:
    """Return the dependency of a route for callers with this scope alone.

    A route declares `caller: Annotated[Caller, require_scope("processes:call")]`.
    """
    return Depends(RequireScope(scope))


class _Public:
    """The dependency of a route for everybody, in place of one on a scope."""

    scope = PUBLIC

    async def __call__(self, request: Request) -> None:
        """Check nothing."""


public = Depends(_Public())


def scope_of(dependencies: Iterable[Any]) -> str | None:
    """Return the scope with which a route was declared, by its dependencies; None for none, or two."""
    found = [each.scope for each in dependencies if isinstance(each, RequireScope | _Public)]
    return found[0] if len(found) == 1 else None
