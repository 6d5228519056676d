"""Who asks, and whether that is allowed: the only place where it is decided.

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
# What the process that asks whether this one lives may see, and every other one too.
PUBLIC = "public"
REALM = 'Bearer realm="progressor"'


class Caller(Protocol):
    """Who asks."""

    @property
    def name(self) -> str:
        """How logs call it: never a secret."""
        ...

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Patterns of the namespaces that it sees: whatever is listed for it is of these alone."""
        ...

    def may(self, scope: Scope, namespace: str | None) -> bool:
        """Whether it may do so in this namespace; None: in those that it sees."""
        ...


class Access(Protocol):
    """Says who asks."""

    async def begin(self, host: str) -> None:
        """InvalidRequest, if anybody could ask on this address who should not."""
        ...

    async def close(self) -> None:
        """Close what was opened to ask others."""
        ...

    async def admit(self, request: Request, scope: Scope, namespace: str | None) -> Caller:
        """Whoever asks, if that is allowed; Refusal otherwise."""
        ...


def require(caller: Caller, scope: Scope, namespace: str | None) -> None:
    """Refusal, 403, that names what this caller lacks."""
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
    """The patterns of what is listed for this caller; None: all."""
    return None if "*" in caller.namespaces else caller.namespaces


class Anybody:
    """A caller of whom nothing is known, and who may do everything."""

    name = "anybody"
    namespaces = ("*",)

    def may(self, scope: Scope, namespace: str | None) -> bool:  # noqa: ARG002 - the protocol's signature
        return True


class OpenAccess:
    """Everybody may do everything, wherever they come from: for tests."""

    async def begin(self, host: str) -> None:
        """Nothing is refused."""

    async def close(self) -> None:
        """Nothing was opened."""

    async def admit(self, request: Request, scope: Scope, namespace: str | None) -> Caller:  # noqa: ARG002 - the protocol's signature
        return Anybody()


class RequireScope:
    """The dependency of a route on its scope; it yields the caller."""

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
            # Without one it asks how this server is.
            place.claim(caller.name)
        return caller


def require_scope(scope: Scope) -> Any:
    """`caller: Annotated[Caller, needs("processes:call")]` of a route, which only such callers may use."""
    return Depends(RequireScope(scope))


class _Public:
    """Stands where a scope stands: this route is for everybody."""

    scope = PUBLIC

    async def __call__(self, request: Request) -> None:
        """Nothing to check."""


public = Depends(_Public())


def scope_of(dependencies: Iterable[Any]) -> str | None:
    """The scope that a route was declared with, from its dependencies; None: with none, or with two."""
    found = [each.scope for each in dependencies if isinstance(each, RequireScope | _Public)]
    return found[0] if len(found) == 1 else None
