"""Namespaces, as an engine or a client takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from progressor.errors import InvalidRequest
from progressor.handlers.namespace import Namespace


def check_namespaces(given: object) -> tuple[Namespace[Any], ...]:
    """Return the namespaces of an engine or a client; InvalidRequest unless it is an iterable of them."""
    namespaces = tuple(given) if isinstance(given, Iterable) else (given,)
    found = tuple(each for each in namespaces if isinstance(each, Namespace))
    if not isinstance(given, Iterable) or len(found) < len(namespaces):
        kind = type(given).__name__
        raise InvalidRequest(
            f"namespaces must be a list of Namespace, [billing] say, not {kind}", field="namespaces"
        )
    return found
