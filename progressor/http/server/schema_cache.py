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
from progressor.http.server.problems import Refusal
from progressor.http.wire.problems import INVALID_ARGS
from progressor.model import TaskType

_KEPT_SECONDS = 10.0
_MOST_KEPT = 1000
_MOST_FAULTS = 20


class _SchemaKey(NamedTuple):
    """The arguments of a task in its request, or the state in an import."""

    task_type: TaskType | None
    name: str | None = None

    @property
    def pointer(self) -> str:
        """Where it stands in the body."""
        return "" if self.task_type is not None else "/state"


_STATE = _SchemaKey(None)


class _CachedSchemas(NamedTuple):
    published: Published
    validators: dict[_SchemaKey, Any]
    until: float


class NamespaceSchemas:
    """The namespaces that were asked for lately."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: OrderedDict[str, _CachedSchemas] = OrderedDict()

    async def of(self, namespace: str) -> Published:
        """What is published of a namespace, at most some seconds old; NamespaceNotFound."""
        return (await self._current(namespace)).published

    async def _current(self, namespace: str) -> _CachedSchemas:
        kept = self._kept.get(namespace)
        if kept is None or kept.until < time.monotonic():
            kept = await self._read(namespace)
        return kept

    async def _read(self, namespace: str) -> _CachedSchemas:
        published = await self._client.published(namespace)
        kept = _CachedSchemas(published, {}, time.monotonic() + _KEPT_SECONDS)
        self._kept[namespace] = kept
        self._kept.move_to_end(namespace)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return kept

    async def check(self, namespace: str, task_type: TaskType, name: str | None, value: Any) -> None:
        """Refusal that names what is wrong, unless arguments of this value are what the namespace takes."""
        await self._require(namespace, _SchemaKey(task_type, name), value)

    async def check_state(self, namespace: str, value: Any) -> None:
        """Refusal that names what is wrong, unless this is a state of the namespace, or none yet."""
        if value is not None:
            await self._require(namespace, _STATE, value)

    async def _require(self, namespace: str, place: _SchemaKey, value: Any) -> None:
        current = await self._current(namespace)
        if current.published.is_raw or not _faults(current, place, value):
            return
        faults = _faults(await self._read(namespace), place, value)
        if faults:
            first = faults[0]
            field = ".".join(["args", *first["pointer"].split("/")[1:]])
            raise Refusal(
                INVALID_ARGS,
                f"{field}: {first['rule']}",
                members={"field": field, "errors": faults},
            )


def _faults(kept: _CachedSchemas, place: _SchemaKey, value: Any) -> list[dict[str, str]]:
    validator = _validator(kept, place)
    # No arguments may be those that have all their defaults.
    if validator is None or (value is None and (validator.is_valid(None) or validator.is_valid({}))):
        return []
    faults = []
    for error in validator.iter_errors(value):
        faults.append({"pointer": place.pointer + _pointer(error.instance_path), "rule": error.message})
        if len(faults) == _MOST_FAULTS:
            break
    return faults


def takes_nothing(schema: Mapping[str, Any]) -> bool:
    """Whether arguments of this schema may be left out."""
    validator = jsonschema_rs.validator_for(dict(schema))
    return validator.is_valid(None) or validator.is_valid({})


def _validator(kept: _CachedSchemas, place: _SchemaKey) -> Any:
    """The validator of this place, made once; None where nothing is published of it."""
    if place not in kept.validators:
        schema = _schema(kept.published.schemas, place)
        if schema is None:
            # Not kept: callers may send any number of names.
            return None
        kept.validators[place] = jsonschema_rs.validator_for(schema, mask="it")
    return kept.validators[place]


def _schema(schemas: Mapping[str, Any], place: _SchemaKey) -> dict[str, Any] | None:
    if place.task_type is not None:
        return args_schema(schemas, place.task_type, place.name)
    schema = schemas.get("state")
    return schema if isinstance(schema, dict) else None


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
