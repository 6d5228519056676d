"""The published schemas of namespaces, kept for some seconds, and arguments checked against them.

Rule: nothing is refused by a kept schema alone. Arguments that do not fit are checked once more against the
schema that is published now, so that a new version of a namespace counts at once.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import jsonschema_rs

from progressor.client.client import Client
from progressor.client.results import Published
from progressor.http.server.problems import Refusal, pointer_of
from progressor.http.wire.problems import INVALID_ARGS
from progressor.model import TaskType

_KEPT_SECONDS = 10.0
_MOST_KEPT = 1000
_MOST_FAULTS = 20


class _SchemaKey(NamedTuple):
    """The key of a schema: of the arguments of a task, or of the state in an import."""

    task_type: TaskType | None
    name: str | None = None

    @property
    def pointer(self) -> str:
        """Return the JSON pointer to the value in the body."""
        return "" if self.task_type is not None else "/state"


_STATE = _SchemaKey(None)


class _CachedSchemas(NamedTuple):
    published: Published
    validators: dict[_SchemaKey, Any]
    until: float


class NamespaceSchemas:
    """The schemas of the namespaces that were asked for lately."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: OrderedDict[str, _CachedSchemas] = OrderedDict()

    async def of(self, namespace: str) -> Published:
        """Return what is published of a namespace, at most some seconds old; raise NamespaceNotFound."""
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
        """Raise Refusal, which names what is wrong, if the namespace does not take these arguments."""
        await self._require(namespace, _SchemaKey(task_type, name), value)

    async def check_state(self, namespace: str, value: Any) -> None:
        """Raise Refusal, which names what is wrong, if this is no state of the namespace; None, no state,
        passes."""
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
                INVALID_ARGS, f"{field}: {first['rule']}", members={"field": field, "errors": faults}
            )


def _faults(kept: _CachedSchemas, place: _SchemaKey, value: Any) -> list[dict[str, str]]:
    validator = _validator(kept, place)
    # Arguments that are left out may stand for an object whose members all have defaults.
    if validator is None or (value is None and (validator.is_valid(None) or validator.is_valid({}))):
        return []
    faults = []
    for error in validator.iter_errors(value):
        faults.append({"pointer": place.pointer + pointer_of(error.instance_path), "rule": error.message})
        if len(faults) == _MOST_FAULTS:
            break
    return faults


def takes_nothing(schema: Mapping[str, Any]) -> bool:
    """Return whether arguments of this schema may be left out."""
    validator = jsonschema_rs.validator_for(dict(schema))
    return validator.is_valid(None) or validator.is_valid({})


def _validator(kept: _CachedSchemas, place: _SchemaKey) -> Any:
    """Return the validator of this key, made once; None if no schema of it is published."""
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
    """Return the schema of the arguments of a start, this call, or a repair; None if none is published."""
    match task_type:
        case TaskType.INIT:
            schema = schemas.get("init")
        case TaskType.REPAIR:
            schema = schemas.get("repair")
        case _:
            schema = (schemas.get("calls") or {}).get(name, {}).get("args")
    return schema if isinstance(schema, dict) else None
