"""The OpenAPI document of one namespace, made of the general one and the schemas that it publishes.

Rule: a route for each call, with the types of its arguments and of its answer. A type that is not published
is any JSON. Definitions of the schemas stand in the document under names of their own.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from progressor.client.results import Published
from progressor.http.server.schema_cache import takes_nothing
from progressor.http.wire.headers import BYTES, JSON
from progressor.http.wire.paths import segment_of

_PREFIX = "/v1/namespaces/{namespace}"
_PROCESS = f"{_PREFIX}/processes/{{process_id}}"
# Routes that are in the document whatever the namespace publishes.
_ALWAYS = ("/repairs", "/timers/{timer}", "/timers/{timer}/fire", "/events", "/trace", "/tasks/{task_id}")
_REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")

Schema = dict[str, Any]


def document_of(published: Published, whole: Mapping[str, Any]) -> Schema:
    """Return the document of this namespace; `whole` is that of all of them."""
    return _Typing(published, whole).document()


class _Typing:
    """The paths and schemas of one namespace, gathered from copies of the general operations."""

    def __init__(self, published: Published, whole: Mapping[str, Any]) -> None:
        self._published = published
        self._whole = whole
        self._paths: Schema = {}
        self._schemas: Schema = copy.deepcopy(whole["components"]["schemas"])

    def document(self) -> Schema:
        schemas = self._published.schemas
        self._state()
        self._path(_PROCESS, {})
        self._typed("start", _PROCESS, schemas.get("init"))
        for name, call in sorted((schemas.get("calls") or {}).items()):
            self._call(name, call.get("args"), call.get("returns"))
        for rest in _ALWAYS:
            self._path(_PROCESS + rest, {})
        if not schemas.get("calls"):
            self._path(_PROCESS + "/calls/{name}", {})
            self._path(_PROCESS + "/notices/{name}", {})
        self._typed("repair", _PROCESS + "/repairs", schemas.get("repair"))
        self._import()
        return {
            "openapi": self._whole["openapi"],
            "info": {**self._whole["info"], "title": self._published.name},
            "servers": self._whole["servers"],
            "paths": self._paths,
            "components": {**self._whole["components"], "schemas": self._referred()},
        }

    def _referred(self) -> Schema:
        """Return the schemas that a path needs, directly or through another schema."""
        found: set[str] = set()
        texts = [json.dumps(self._paths)]
        while texts:
            for name in _REFERENCE.findall(texts.pop()):
                if name not in found:
                    found.add(name)
                    texts.append(json.dumps(self._schemas[name]))
        return {name: schema for name, schema in self._schemas.items() if name in found}

    def _import(self) -> None:
        """Type the import: it takes states of the namespace's type, and values as JSON or as bytes."""
        body = self._paths[_PROCESS.replace("{namespace}", self._published.name)]["put"]["requestBody"]
        process = body["content"][JSON]["schema"]["properties"]
        event = process["events"]["items"]
        if "State" in self._schemas:
            process["state"] = _STATE_OR_NONE
        kind, other = ("_base64", "") if self._published.is_raw else ("", "_base64")
        del process["state" + other], event["properties"]["payload" + other]
        event["required"] = ["payload" + kind]

    def _path(self, path: str, renamed: Mapping[str, str]) -> Schema:
        """Copy a path of the general document to one of this namespace, and return its operations."""
        own = path.replace("{namespace}", self._published.name)
        for before, after in renamed.items():
            own = own.replace(before, after)
        operations: Schema = copy.deepcopy(self._whole["paths"][path])
        for operation in operations.values():
            gone = {"namespace", *("name" for each in renamed if each == "{name}")}
            operation["parameters"] = [
                each for each in operation.get("parameters", ()) if each["name"] not in gone
            ]
        self._paths[own] = operations
        return operations

    def _call(self, name: str, args: Schema | None, returns: Schema | None) -> None:
        titled = _title(name)
        for kind, what in (("calls", "call"), ("notices", "notify")):
            operations = self._path(f"{_PROCESS}/{kind}/{{name}}", {"{name}": segment_of(name)})
            operation = operations["post"]
            operation["operationId"] = f"{what}_{_NO_NAME.sub('_', name)}"
            operation["summary"] = f"{operation['summary']}: {name}"
            self._take(operation, titled, args)
            if what == "call":
                self._give(operation, titled, returns)

    def _typed(self, what: str, path: str, args: Schema | None) -> None:
        operation = self._paths[path.replace("{namespace}", self._published.name)]["post"]
        operation["operationId"] = what
        self._take(operation, _title(what), args)
        self._give(operation, _title(what), None)

    def _take(self, operation: Schema, titled: str, args: Schema | None) -> None:
        if self._published.is_raw:
            operation["requestBody"]["content"] = {BYTES: _BYTES}
            return
        schema = {} if args is None else self._added(f"{titled}Args", args)
        operation["requestBody"]["content"] = {JSON: {"schema": schema}}
        operation["requestBody"]["required"] = args is not None and not takes_nothing(args)

    def _give(self, operation: Schema, titled: str, returns: Schema | None) -> None:
        for status in ("200", "201"):
            answer = operation["responses"].get(status)
            if answer is None:
                continue
            if self._published.is_raw:
                answer["content"] = {BYTES: _BYTES}
            else:
                schema = {} if returns is None else self._added(f"{titled}Answer", returns)
                answer["content"] = {JSON: {"schema": schema}}

    def _state(self) -> None:
        """Type the states of processes: of the namespace's type, or null for none yet."""
        state = self._published.schemas.get("state")
        if state is not None:
            self._added("State", state)
            self._schemas["ProcessBody"]["properties"]["state"] = _STATE_OR_NONE

    def _added(self, name: str, schema: Schema) -> Schema:
        """Add a schema as a component, and its definitions as others; return a reference to it."""
        schema = copy.deepcopy(schema)
        definitions = schema.pop("$defs", {})
        names = {each: f"{name}{_title(each)}" for each in definitions}
        for each, definition in definitions.items():
            self._schemas[names[each]] = _moved(definition, names) | {"title": names[each]}
        # Generators name classes after titles, which need not be unique among models: take the new names.
        self._schemas[name] = _moved(schema, names) | {"title": name}
        return _reference(name)


_STATE_OR_NONE = {"anyOf": [{"$ref": "#/components/schemas/State"}, {"type": "null"}]}
_BYTES = {"schema": {"type": "string", "format": "binary"}}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _moved(schema: Any, names: Mapping[str, str]) -> Any:
    """Return a schema whose references lead to where its definitions stand now."""
    match schema:
        case {"$ref": str(text)} if text.startswith("#/$defs/"):
            rest = {key: _moved(value, names) for key, value in schema.items() if key != "$ref"}
            return rest | _reference(names[text.removeprefix("#/$defs/")])
        case {"mapping": dict(mapping), "propertyName": name}:
            moved = {
                key: _reference(names[text.removeprefix("#/$defs/")])["$ref"]
                for key, text in mapping.items()
            }
            return {"mapping": moved, "propertyName": name}
        case dict():
            return {key: _moved(value, names) for key, value in schema.items()}
        case list():
            return [_moved(part, names) for part in schema]
        case _:
            return schema


def _title(name: str) -> str:
    """Return a name as a part of a component's name."""
    return "".join(part[:1].upper() + part[1:] for part in _NO_NAME.sub("_", name).split("_")) or "Call"
