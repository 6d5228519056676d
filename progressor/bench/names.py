"""Names of the benchmarks' processes: as long as real ones are, or as short as they can be."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """A namespace, and the ids of its processes by number; the SQL of `rows.py` makes the same ids."""

    namespace: str
    prefix: str
    uuids: bool = False
    """True: ids are like random UUIDs, spread over the whole key space."""

    def process_id(self, number: int) -> str:
        plain = f"{self.prefix}{number}"
        if not self.uuids:
            return plain
        return str(uuid.UUID(hashlib.md5(plain.encode(), usedforsecurity=False).hexdigest()))


STYLES: Mapping[str, Names] = {
    "long": Names("subscription.billing", "process-", uuids=True),
    "short": Names("b", "p"),
}
"""long: UUIDs in a namespace of 20 characters; short: a few characters in one of one."""


def named(style: str | None, otherwise: Names) -> Names:
    """Return the names of a style; `otherwise` without one."""
    return otherwise if style is None else STYLES[style]
