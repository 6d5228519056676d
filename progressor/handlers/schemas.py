"""JSON schemas of what the functions of a namespace take and answer, for clients without user code."""

from __future__ import annotations

from typing import Any

from progressor.handlers.codec import fits_jsonb
from progressor.handlers.namespace import Namespace
from progressor.handlers.state.shape import ANY
from progressor.model import TaskType


def schemas_of(namespace: Namespace[Any]) -> dict[str, Any]:
    """Return the schemas of the state, of arguments of start, calls and repair, and of answers.

    `dry_run` says whether the repair handler takes dry runs.
    """
    init, repair = namespace.find(TaskType.INIT), namespace.find(TaskType.REPAIR)
    return {
        "state": None if namespace.shape is ANY else namespace.shape.schema("validation"),
        "init": init and init.args_schema,
        "calls": {
            name: {"args": call.args_schema, "returns": call.returns_schema}
            for name, call in sorted(namespace.calls.items())
        },
        "repair": repair and repair.args_schema,
        "dry_run": namespace.dry_runs,
    }


def storable_schemas(namespace: Namespace[Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the schemas with None for each that jsonb cannot hold; the names of these."""
    schemas = schemas_of(namespace)
    places = [(schemas, each, each) for each in ("state", "init", "repair")]
    for name, call in schemas["calls"].items():
        places += ((call, each, f"call {name}: {each}") for each in call)
    left_out = []
    for holder, key, what in places:
        if not fits_jsonb(holder[key]):
            holder[key] = None
            left_out.append(what)
    return schemas, left_out
