"""The operations that callers of one object made, as they saw them from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: called at a moment, and answered at another one, or never heard of again.

    Without an answer (`answered` is None) it may have had its effect at any moment since then, or never.
    An operation that certainly had none is not recorded.
    """

    verb: str
    value: Any
    called: float
    answered: float | None
    answer: Any = None

    @property
    def is_known(self) -> bool:
        """Whether its caller has an answer."""
        return self.answered is not None
