"""The file of `progressor sink`: which events go where. Pure but for the imports of the sinks it names.

Rule: a file that names anything unknown is refused as a whole, before anything is sent; no error shows a
value, which may be a secret.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from progressor.errors import InvalidRequest
from progressor.handlers.codec import faults
from progressor.inputs import all_names_like
from progressor.model import FeedKind

_TYPES: Mapping[str, str] = {
    "webhook": "webhook:WebhookOptions",
    "kafka": "kafka:KafkaOptions",
    "nats": "nats:NatsOptions",
    "ndjson": "ndjson:NdjsonOptions",
    "function": "function:FunctionOptions",
}
_ENVIRONMENT = "env:"


class ForwardedTo(BaseModel):
    """The choice of events for one sink, and what happens if it refuses one."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    namespaces: list[str] | None = None
    events: list[str] | None = None
    kinds: list[FeedKind] = Field(default=["event"])
    start: str | datetime = "latest"
    slices: int | None = None
    on_failure: Literal["block", "park"] = "block"


class ConfiguredSink(NamedTuple):
    """One table of the file: the name of its subscription, its events, and its sink."""

    name: str
    forwarded: ForwardedTo
    options: Any


def read_sinks(text: str, environment: Mapping[str, str]) -> Sequence[ConfiguredSink]:
    """Return the sinks of a TOML file; InvalidRequest names a table and a key that are wrong.

    A text `env:NAME` stands for the variable of this name.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"it is no TOML: {error}", field="config") from None
    tables = document.pop("sinks", None)
    if document or not isinstance(tables, dict) or not tables:
        raise InvalidRequest("it must have tables [sinks.NAME], and nothing else", field="config")
    return [_sink(name, table, environment) for name, table in tables.items()]


def _sink(name: str, table: object, environment: Mapping[str, str]) -> ConfiguredSink:
    where = f"sinks.{name}"
    if not isinstance(table, dict) or not isinstance(table.get("type"), str):
        raise InvalidRequest(f"{where} must be a table with a type", field=where)
    kind = table["type"]
    if kind not in _TYPES:
        raise InvalidRequest(f"{where}.type must be {all_names_like(kind, _TYPES)}", field=f"{where}.type")
    resolved = _resolved(table, where, environment)
    common = {key: value for key, value in resolved.items() if key in ForwardedTo.model_fields}
    own = {key: value for key, value in resolved.items() if key not in ForwardedTo.model_fields}
    module, _, attribute = _TYPES[kind].partition(":")
    options = getattr(import_module(f"progressor.sinks.{module}"), attribute)
    try:
        found = ConfiguredSink(name, ForwardedTo(**common), options(**own))
    except ValidationError as error:
        raise InvalidRequest(faults(error, where), field=where) from None
    if kind == "function" and found.forwarded.slices is not None:
        raise InvalidRequest(f"{where}.slices: a function has one slice, leave it out", field=where)
    return found


def _resolved(value: Any, where: str, environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _resolved(each, f"{where}.{key}", environment) for key, each in value.items()}
    if isinstance(value, list):
        return [_resolved(each, where, environment) for each in value]
    if not isinstance(value, str) or not value.startswith(_ENVIRONMENT):
        return value
    variable = value.removeprefix(_ENVIRONMENT)
    if variable not in environment:
        raise InvalidRequest(f"{where}: the environment has no {variable}", field=where)
    return environment[variable]
