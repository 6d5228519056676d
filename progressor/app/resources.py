"""Resources: values that handlers take by name, handed out once, as an engine starts.

Rule: a namespace is never changed. Each engine has its own copies of the functions that take resources, so
two engines of one OS process may give different ones to the same namespace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from progressor.errors import InvalidRequest
from progressor.handlers.namespace import Namespace

RESERVED: Final = ("connection", "process", "args")
"""Names that no resource can have: handlers get these from the engine, step by step."""


def check_names(given: object, *, by: str) -> Mapping[str, Any]:
    """Return resources by name; InvalidRequest, which names who gave them, if they cannot be handed out."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidRequest(
            f"{by} must give resources by name, {{'http': client}} say, or None, "
            f"not {type(given).__name__}",
            field="resources",
        )
    for name in given:
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidRequest(
                f"{by}: the name of a resource must be an identifier, not {name!r:.80}",
                field="resources",
            )
        if name in RESERVED:
            raise InvalidRequest(
                f"{by}: no resource can be named {name}, which handlers get from the engine",
                field="resources",
            )
    return dict(given)


def bind(namespaces: Sequence[Namespace[Any]], given: Mapping[str, Any]) -> tuple[Namespace[Any], ...]:
    """Return the namespaces with the resources that their handlers take.

    InvalidRequest names each parameter for which no resource is given.
    """
    missing = list(_missing(namespaces, given))
    if missing:
        shown = f"gives {', '.join(given)}" if given else "gives none"
        raise InvalidRequest(
            f"handlers take resources that are not given: {'; '.join(missing)}. "
            f"The lifespan of App(namespaces, lifespan=...), or World(resources=...), {shown}",
            field="resources",
        )
    return tuple(each.bound(given) for each in namespaces)


def _missing(namespaces: Sequence[Namespace[Any]], given: Mapping[str, Any]) -> Iterator[str]:
    for namespace in namespaces:
        for function in namespace.functions:
            names = [name for name in function.resources if name not in given]
            if names:
                yield f"{', '.join(names)} for {function.name} of {namespace.name}"
