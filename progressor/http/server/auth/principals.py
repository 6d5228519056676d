"""Principals, which are authenticated callers, and the refusals of all others.

Rule: a refusal names what is missing, and never repeats what was shown.
"""

from __future__ import annotations

from typing import NamedTuple

from progressor.http.server.problems import Refusal
from progressor.http.wire.problems import UNAUTHORIZED
from progressor.rights import Rights, Scope

REALM = 'Bearer realm="progressor"'


class Principal(NamedTuple):
    """A caller with its rights; `name` tells callers apart, in logs, the audit and for their rates.

    `label` is how people call it, where that is not its name.
    """

    name: str
    rights: Rights
    label: str | None = None

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return the patterns of the namespaces that the caller sees."""
        return self.rights.namespaces

    def may(self, scope: Scope, namespace: str | None) -> bool:
        """Return whether the caller has the scope in this namespace; None: in those that it sees."""
        if namespace is None:
            return scope in self.rights.scopes and bool(self.rights.namespaces)
        return scope in self.rights.scopes and self.rights.sees(namespace)


NOBODY = Principal("nobody", Rights(frozenset(), ()))
"""The caller of a request before it is admitted, and of a public one."""


def unknown(detail: str, *, shown: bool = True) -> Refusal:
    """Return the refusal 401: nothing was shown, or what was `shown` does not hold."""
    challenge = f'{REALM}, error="invalid_token"' if shown else REALM
    return Refusal(UNAUTHORIZED, detail, headers={"WWW-Authenticate": challenge})
