"""Callers and scopes: the only place where a request is allowed or refused for its caller."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from starlette.requests import Request

from progressor.http.server.auth.principals import REALM, Principal
from progressor.http.server.auth.rate_limit import RateStatus
from progressor.http.server.problems import Refusal
from progressor.http.wire.problems import FORBIDDEN
from progressor.rights import Scope


class Admission(NamedTuple):
    """The caller of a request, and what is left of the rate; None without a limit."""

    caller: Principal
    rate: RateStatus | None = None


class Access(Protocol):
    """The authentication of callers."""

    async def begin(self, host: str) -> None:
        """Raise InvalidRequest if callers could ask on this address who must not."""
        ...

    async def close(self) -> None:
        """Close the connections that authentication has opened."""
        ...

    async def admit(self, request: Request) -> Admission:
        """Return the caller of a request; raise Refusal if it is unknown."""
        ...


def require(caller: Principal, scope: Scope, namespace: str | None) -> None:
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


def seen_by(caller: Principal) -> tuple[str, ...] | None:
    """Return the patterns of the namespaces that are listed for this caller; None: all."""
    return None if "*" in caller.namespaces else caller.namespaces
