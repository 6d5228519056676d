"""Rights: scopes, patterns of namespaces, and the tokens that carry both.

Rule: one model of rights for whatever lets others in. No scope contains another one, and what is not
granted is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from progressor.errors import InvalidRequest
from progressor.inputs import names_like
from progressor.model import MAX_ID_LENGTH

MOST_PATTERNS = 100
_PATTERN = re.compile(r"[A-Za-z0-9*][A-Za-z0-9_.*-]*")
_TOKEN = re.compile(r"prg_([0-9a-f]{16})_([0-9a-f]{64})")


class Scope(StrEnum):
    """One thing that a caller may do in the namespaces that it may see."""

    PROCESSES_READ = "processes:read"
    STATE_READ = "state:read"
    PROCESSES_START = "processes:start"
    PROCESSES_CALL = "processes:call"
    PROCESSES_REPAIR = "processes:repair"
    PROCESSES_REMOVE = "processes:remove"
    PROCESSES_PUT = "processes:put"
    BULK = "bulk"
    ADMIN = "admin"
    ERRORS_READ = "errors:read"


@dataclass(frozen=True, slots=True)
class Rights:
    """Scopes, and the patterns of the namespaces in which they hold."""

    scopes: frozenset[Scope]
    namespaces: tuple[str, ...]

    def sees(self, namespace: str) -> bool:
        """Whether one of the patterns fits the namespace's name."""
        return any(fits(pattern, namespace) for pattern in self.namespaces)

    @property
    def sees_all(self) -> bool:
        """Whether no namespace is hidden."""
        return "*" in self.namespaces


EVERYTHING = Rights(frozenset(Scope), ("*",))


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token as it is kept: of its secret only the hash.

    `left` is for how long it was still valid when it was read; None: it has no end.
    """

    token_id: str
    name: str
    rights: Rights
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    left: timedelta | None
    secret_hash: bytes = field(repr=False)

    def has_secret(self, secret: str) -> bool:
        """Whether this is its secret; the time that it takes tells nothing of it."""
        return hmac.compare_digest(self.secret_hash, hash_of(secret))

    @property
    def status(self) -> str:
        """`live`, `expired` or `revoked`, as of the moment at which it was read."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.left is not None and self.left <= timedelta() else "live"


class Bearer(NamedTuple):
    """The two parts of a token's text: by which it is found, and what proves it."""

    token_id: str
    secret: str

    @classmethod
    def drawn(cls) -> Bearer:
        """A new one, at random: 64 bits of id, 256 bits of secret."""
        return cls(secrets.token_hex(8), secrets.token_hex(32))

    @classmethod
    def read(cls, text: str) -> Bearer | None:
        """The parts of a token; None if that is none."""
        found = _TOKEN.fullmatch(text)
        return None if found is None else cls(found[1], found[2])

    @property
    def text(self) -> str:
        return f"prg_{self.token_id}_{self.secret}"

    def __repr__(self) -> str:
        return f"Bearer({self.token_id})"


def hash_of(secret: str) -> bytes:
    """SHA-256: a secret of 256 random bits needs no slower one."""
    return hashlib.sha256(secret.encode()).digest()


def check_scopes(field: str, names: Iterable[str]) -> frozenset[Scope]:
    """These scopes, or InvalidRequest; `all` stands for those that there are today."""
    found: set[Scope] = set()
    for name in names:
        if name == "all":
            found.update(Scope)
        elif name in tuple(Scope):
            found.add(Scope(name))
        else:
            known = names_like(str(name), ("all", *Scope))
            raise InvalidRequest(f"{field} must be some of {known}, not {name!r:.80}", field=field)
    if not found:
        raise InvalidRequest(f"{field} must name at least one scope", field=field)
    return frozenset(found)


def check_patterns(field: str, patterns: Iterable[str]) -> tuple[str, ...]:
    """These patterns of namespaces, or InvalidRequest; a `*` stands for any characters."""
    listed = tuple(dict.fromkeys(patterns))
    for pattern in listed:
        if not isinstance(pattern, str) or not is_pattern(pattern):
            raise InvalidRequest(
                f"{field} must be names of namespaces in which * stands for any characters "
                f"('billing.*'), not {pattern!r:.80}",
                field=field,
            )
    if not 1 <= len(listed) <= MOST_PATTERNS:
        raise InvalidRequest(f"{field} must be 1 to {MOST_PATTERNS} patterns", field=field)
    return listed


def is_pattern(pattern: str) -> bool:
    """Whether this could fit a namespace."""
    return len(pattern) <= MAX_ID_LENGTH and _PATTERN.fullmatch(pattern) is not None


def fitting(patterns: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that any of the patterns fits."""
    listed = tuple(patterns)
    return tuple(name for name in names if any(fits(pattern, name) for pattern in listed))


def fits(pattern: str, namespace: str) -> bool:
    """Whether a namespace's name is what the pattern says; in one pass, however many stars it has."""
    first, *others = pattern.split("*")
    if not others:
        return namespace == first
    if not namespace.startswith(first):
        return False
    place = len(first)
    *middle, last = others
    for part in middle:
        place = namespace.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return len(namespace) - place >= len(last) and namespace.endswith(last)


def like(pattern: str) -> str:
    """The pattern of LIKE that fits the same namespaces."""
    return pattern.replace("_", r"\_").replace("*", "%")
