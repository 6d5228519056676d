"""Rights: scopes, patterns of namespaces, and the tokens that carry both.

Rule: one model of rights for every way in. No scope contains another one, and what is not granted is
refused.
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
from progressor.inputs import MAX_ID_LENGTH, all_names_like

MOST_PATTERNS = 100
PATTERN_OF_NAMES = r"^[A-Za-z0-9*][A-Za-z0-9_.*-]*$"
"""The regular expression of patterns of namespaces."""
_PATTERN = re.compile(PATTERN_OF_NAMES)
_TOKEN = re.compile(r"prg_([0-9a-f]{16})_([0-9a-f]{64})")


class Scope(StrEnum):
    """The scopes: each is one thing that a caller may do in the namespaces that it may see."""

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
    AUDIT_READ = "audit:read"


@dataclass(frozen=True, slots=True)
class Rights:
    """Scopes, and the patterns of the namespaces in which they hold."""

    scopes: frozenset[Scope]
    namespaces: tuple[str, ...]

    def sees(self, namespace: str) -> bool:
        """Return whether one of the patterns fits the namespace's name."""
        return self.sees_all or any(fits(pattern, namespace) for pattern in self.namespaces)

    @property
    def sees_all(self) -> bool:
        """True if no namespace is hidden."""
        return "*" in self.namespaces


EVERYTHING = Rights(frozenset(Scope), ("*",))


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token as its row keeps it, with only the hash of its secret.

    `left` is the time for which it was still valid when it was read; None: it has no end.
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
        """Return whether this is its secret; the time that it takes reveals nothing of it."""
        return hmac.compare_digest(self.secret_hash, hash_of(secret))

    @property
    def status(self) -> str:
        """`live`, `expired` or `revoked`, as of the moment at which it was read."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.left is not None and self.left <= timedelta() else "live"


class Bearer(NamedTuple):
    """The two parts of a token's text: the public id, by which it is found, and the secret."""

    token_id: str
    secret: str

    @classmethod
    def drawn(cls) -> Bearer:
        """Draw a new one: 64 random bits of id, 256 of secret."""
        return cls(secrets.token_hex(8), secrets.token_hex(32))

    @classmethod
    def read(cls, text: str) -> Bearer | None:
        """Return the parts of a token's text; None if it has not the form of one."""
        found = _TOKEN.fullmatch(text)
        return None if found is None else cls(found[1], found[2])

    @property
    def text(self) -> str:
        return f"prg_{self.token_id}_{self.secret}"

    def __repr__(self) -> str:
        return f"Bearer({self.token_id})"


def hash_of(secret: str) -> bytes:
    """Return the SHA-256 of a secret: its 256 random bits need no slower hash."""
    return hashlib.sha256(secret.encode()).digest()


def check_scopes(field: str, names: Iterable[str]) -> frozenset[Scope]:
    """Return the scopes of these names; `all` is every scope of today. InvalidRequest for other names."""
    found: set[Scope] = set()
    for name in names:
        if name == "all":
            found.update(Scope)
        elif name in tuple(Scope):
            found.add(Scope(name))
        else:
            known = all_names_like(str(name), ("all", *Scope))
            raise InvalidRequest(f"{field} must be some of {known}, not {name!r:.80}", field=field)
    if not found:
        raise InvalidRequest(f"{field} must name at least one scope", field=field)
    return frozenset(found)


def check_patterns(field: str, patterns: Iterable[str]) -> tuple[str, ...]:
    """Return 1 to 100 patterns of namespaces, or raise InvalidRequest; a `*` fits any characters."""
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
    """Return whether this text is a pattern that could fit a namespace."""
    return len(pattern) <= MAX_ID_LENGTH and _PATTERN.fullmatch(pattern) is not None


def fitting(patterns: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that one of the patterns fits."""
    listed = tuple(patterns)
    return tuple(name for name in names if any(fits(pattern, name) for pattern in listed))


def fits(pattern: str, namespace: str) -> bool:
    """Return whether a pattern fits a namespace's name; in one pass, however many stars it has."""
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
    """Return the pattern of SQL's LIKE that fits the same namespaces."""
    return pattern.replace("_", r"\_").replace("*", "%")
