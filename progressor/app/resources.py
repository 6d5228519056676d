"""Resources: the values that handlers take by name, handed out once as an engine starts.

Rule: a namespace is never changed. Each engine has its own copies of the functions that take resources, so
two engines of one OS process may give different ones to the same namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from progressor.errors import InvalidRequest
from progressor.handlers.namespace import Namespace


def check_resources(namespaces: Sequence[Namespace[Any]], given: Mapping[str, Any]) -> None:
    """Raise InvalidRequest that names each parameter of a handler for which no resource is given."""
    missing = [
        f"{', '.join(names)} of {function.name} in {namespace.name}"
        for namespace in namespaces
        for function in namespace.functions
        if (names := [name for name in function.resources if name not in given])
    ]
    if missing:
        shown = ", ".join(given) or "none"
        raise InvalidRequest(
            f"handlers take resources that are not given: {'; '.join(missing)} (given: {shown})",
            field="resources",
        )
