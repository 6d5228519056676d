"""Unknown fields of a stored state: a worker of another version wrote them, and its type has no such field.

Rule: a field is kept only where its owner is certain: in the state itself, and in a model within it that
the handler carries over. Its value is the stored one. A field that a validator takes is not unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json

_EXTRA = ("extra_forbidden", "unexpected_keyword_argument")
_TRANSPARENT = ("nullable", "function-before", "function-after")
# Parts of a schema that hold values and functions of the user, not schemas.
_NO_SCHEMA = (
    "serialization",
    "metadata",
    "config",
    "cls",
    "default",
    "default_factory",
    "function",
    "expected",
)


class Field(NamedTuple):
    """A field of a model: its name, and the keys under which JSON may have it."""

    name: str
    keys: tuple[str, ...]
    schema: Mapping[str, Any]


class UnknownField(NamedTuple):
    """An unknown field: the names that lead to its owner, the owner as read, its key and its value."""

    path: tuple[str, ...]
    owner: Any
    key: str
    value: Any


class Fields:
    """The fields of a type, by its core schema."""

    __slots__ = ("_definitions", "_root", "are_certain", "keep_unknown")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions: dict[str, Mapping[str, Any]] = {}
        self._root = schema
        parts = list(_parts(schema))
        for each in parts:
            if "ref" in each:
                self._definitions[each["ref"]] = each
        self.keep_unknown: bool = any(_keeps_unknown(each) for each in parts)
        """True if some part of the type keeps unknown fields."""
        self.are_certain: bool = not any(_depends_on_unknown(each) for each in parts)
        """True if a value without unknown fields is read the same whether they are allowed or forbidden."""

    def unknown(self, error: ValidationError, plain: bytes, value: Any) -> tuple[UnknownField, ...]:
        """Return the unknown fields to keep of a state, read as `value`; `error` forbids all of them."""
        places = [
            fault["loc"]
            for fault in error.errors(include_url=False, include_context=False, include_input=False)
            if fault["type"] in _EXTRA
        ]
        stored = from_json(plain) if places else None
        found = (self._unknown_at(place, stored, value) for place in places)
        return tuple(each for each in found if each is not None)

    def _unknown_at(self, place: tuple[Any, ...], stored: Any, owner: Any) -> UnknownField | None:
        schema, path = self._model(self._root), []
        for step in place[:-1]:
            field = next((each for each in _fields(schema) if step in each.keys), None)
            key = next((each for each in field.keys if each in stored), None) if field else None
            if field is None or key is None or not isinstance(stored[key], dict):
                return None
            path.append(field.name)
            schema, stored, owner = self._model(field.schema), stored[key], _part(owner, field.name)
        key = place[-1]
        if not _keeps_unknown(schema) or not isinstance(stored, dict) or key not in stored:
            return None
        return UnknownField(tuple(path), owner, key, stored[key])

    def _model(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the model, dataclass or typed dict of a schema; an empty one for any other."""
        while True:
            kind = schema["type"]
            if kind == "definition-ref":
                schema = self._definitions[schema["schema_ref"]]
            elif kind in ("definitions", *_TRANSPARENT) or (kind == "default" and not _recovers(schema)):
                schema = schema["schema"]
            else:
                return schema if kind in ("model", "dataclass", "typed-dict") else {"type": "any"}


def with_unknown(written: Any, value: Any, unknown: Sequence[UnknownField]) -> Any:
    """Return the JSON value of a state, with the unknown fields whose owners are still there."""
    for each in unknown:
        owner, place = value, written
        for name in each.path:
            owner = _part(owner, name)
            place = place.get(name) if isinstance(place, dict) else None
        # A new state may be a changed copy of the old one; a new model within it is another one.
        is_same = owner is each.owner if each.path else type(owner) is type(each.owner)
        if is_same and isinstance(place, dict):
            place.setdefault(each.key, each.value)
    return written


def _part(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Return all parts of a schema that validate."""
    if isinstance(schema, Mapping):
        if isinstance(schema.get("type"), str):
            yield schema
        for key, part in schema.items():
            if key not in _NO_SCHEMA:
                yield from _parts(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _parts(part)


def _recovers(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("on_error", "raise") != "raise")


def _extra(schema: Mapping[str, Any]) -> str | None:
    """Return the treatment of unknown fields that a type states; None if it states none."""
    config = schema.get("config") or {}
    stated: str | None = config.get("extra_fields_behavior")
    if stated is None and schema.get("extra_behavior") != "ignore":
        # pydantic notes on each typed dict that it ignores them.
        stated = schema.get("extra_behavior")
    return stated


def _keeps_unknown(schema: Mapping[str, Any]) -> bool:
    is_model = schema["type"] in ("model", "dataclass", "typed-dict") and not schema.get("root_model")
    return is_model and _extra(schema) is None


def _depends_on_unknown(schema: Mapping[str, Any]) -> bool:
    """Return whether a part may read another value if unknown fields are forbidden."""
    return schema["type"] in ("union", "function-wrap") or _recovers(schema) or _extra(schema) == "allow"


def _fields(schema: Mapping[str, Any]) -> Iterator[Field]:
    """Yield the fields of a model, a dataclass or a typed dict; none of any other schema."""
    while schema["type"] in ("model", "dataclass", *_TRANSPARENT):
        schema = schema["schema"]
    fields = schema.get("fields", {})
    named = fields.items() if isinstance(fields, Mapping) else ((each["name"], each) for each in fields)
    for name, field in named:
        alias = field.get("validation_alias")
        yield Field(name, (name, alias) if isinstance(alias, str) else (name,), field["schema"])
