"""What namespaces take: their published schemas, kept for a moment, and arguments checked against them.

Rule: nothing is refused by what was kept. Arguments that do not fit are checked once more against what is
published now, so that a new version of a namespace is heard at once.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import jsonschema_rs

from progressor.client.client import Client
from progressor.client.results import Published
from progressor.http.problems import INVALID_ARGS, Refusal
from progressor.model import TaskType

_KEPT_SECONDS = 10.0
_MOST_KEPT = 1000
_MOST_FAULTS = 20


class _Kept(NamedTuple):
    published: Published
    validators: dict[tuple[TaskType, str | None], Any]
    until: float


class Publications:
    """The namespaces that were asked for lately."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def of(self, namespace: str) -> Published:
        """What is published of a namespace, at most some seconds old; NamespaceNotFound."""
        return (await self._current(namespace)).published

    async def _current(self, namespace: str) -> _Kept:
        kept = self._kept.get(namespace)
        if kept is None or kept.until < time.monotonic():
            kept = await self._read(namespace)
        return kept

    async def _read(self, namespace: str) -> _Kept:
        published = await self._client.published(namespace)
        kept = _Kept(published, {}, time.monotonic() + _KEPT_SECONDS)
        self._kept[namespace] = kept
        self._kept.move_to_end(namespace)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return kept

    async def check(self, namespace: str, task_type: TaskType, name: str | None, value: Any) -> None:
        """Refusal that names what is wrong, unless arguments of this value are what the namespace takes."""
        current = await self._current(namespace)
        if current.published.is_raw:
            return
        if not _faults(current, task_type, name, value):
            return
        faults = _faults(await self._read(namespace), task_type, name, value)
        if faults:
            first = faults[0]
            field = ".".join(["args", *first["pointer"].split("/")[1:]])
            raise Refusal(
                INVALID_ARGS,
                f"{field}: {first['rule']}",
                members={"field": field, "errors": faults},
            )


def _faults(kept: _Kept, task_type: TaskType, name: str | None, value: Any) -> list[dict[str, str]]:
    validator = _validator(kept, task_type, name)
    # No arguments may be those that have all their defaults.
    if validator is None or (value is None and (validator.is_valid(None) or validator.is_valid({}))):
        return []
    faults = []
    for error in validator.iter_errors(value):
        faults.append({"pointer": _pointer(error.instance_path), "rule": error.message})
        if len(faults) == _MOST_FAULTS:
            break
    return faults


def _validator(kept: _Kept, task_type: TaskType, name: str | None) -> Any:
    """The validator of these arguments, made once; None where nothing is published of them."""
    key = (task_type, name)
    if key not in kept.validators:
        schema = args_schema(kept.published.schemas, task_type, name)
        if schema is None:
            # Not kept: callers may send any number of names.
            return None
        kept.validators[key] = jsonschema_rs.validator_for(schema, mask="it")
    return kept.validators[key]


def args_schema(schemas: Mapping[str, Any], task_type: TaskType, name: str | None) -> dict[str, Any] | None:
    """What a start, a call of this name, or a repair takes; None where that is not said."""
    match task_type:
        case TaskType.INIT:
            schema = schemas.get("init")
        case TaskType.REPAIR:
            schema = schemas.get("repair")
        case _:
            schema = (schemas.get("calls") or {}).get(name, {}).get("args")
    return schema if isinstance(schema, dict) else None


def _pointer(path: list[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
