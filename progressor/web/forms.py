"""Forms for arguments: the fields that a JSON schema asks for, and the value that submitted fields state.

Rule: a number is text until it is read here, so no browser rounds it, and an error names its field. Whether
the value fits the schema is checked where requests are accepted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from progressor.client.results import Published
from progressor.errors import InvalidRequest
from progressor.handlers.codec import decode
from progressor.texts import to_json

FieldKind = Literal["text", "whole", "number", "exact", "flag", "choice"]
"""The kinds of fields; `exact` is a number that stays text for its handler, as a Decimal does."""

Submitted = Mapping[str, str]

AS_JSON = "args"
"""The field with all arguments as JSON, which counts before the others."""
PREFIX = "args."
"""The beginning of the name of a field for one argument; arguments that are one value have it alone."""

_KINDS: Mapping[str, FieldKind] = MappingProxyType(
    {"string": "text", "integer": "whole", "number": "number", "boolean": "flag"}
)
_NOUNS: Mapping[FieldKind, str] = MappingProxyType(
    {"whole": "a whole number", "number": "a number", "exact": "a number"}
)
_OF_FLAT_OBJECTS = {
    "type",
    "title",
    "description",
    "properties",
    "required",
    "additionalProperties",
    "$defs",
}
_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T09:00:00Z",
    "time": "09:00:00",
    "duration": "PT15M",
}
_LIMITS = (("minimum", "at least"), ("exclusiveMinimum", "more than"))
_UPPER_LIMITS = (("maximum", "at most"), ("exclusiveMaximum", "less than"))
_WHOLE = re.compile(r"-?[0-9]{1,1000}")
_NUMBER = re.compile(r"-?[0-9]{1,1000}(\.[0-9]{1,1000})?([eE][+-]?[0-9]{1,4})?")
_MOST_FIELDS = 30
_DEEPEST = 5


class Choice(NamedTuple):
    """One value to choose: as JSON, and as people read it."""

    value: str
    label: str


class FormField(NamedTuple):
    """The field of one argument; `name` is empty if the arguments are one value.

    `default` is what holds if the field is left empty, as text; None if nothing does.
    """

    name: str
    kind: FieldKind
    is_required: bool = True
    takes_null: bool = False
    default: str | None = None
    description: str = ""
    hint: str = ""
    choices: tuple[Choice, ...] = ()

    @property
    def key(self) -> str:
        """Return its name in the form."""
        return PREFIX + self.name

    @property
    def path(self) -> str:
        """Return its name in errors."""
        return f"args.{self.name}" if self.name else "args"

    @property
    def note(self) -> str:
        """Return what people must know to fill it in: is it required, what it may be, what it means."""
        parts = [] if self.kind == "flag" else [self._if_empty, _NOUNS.get(self.kind), self.hint]
        return ". ".join(filter(None, (", ".join(filter(None, parts)), self.description)))

    @property
    def _if_empty(self) -> str:
        if self.is_required:
            return "null if empty" if self.takes_null else "required"
        return "may stay empty" if self.default is None else f"{self.default} if empty"

    def read(self, text: str | None) -> Any:
        """Return the value of a submitted text, _LEFT_OUT for none; InvalidRequest if it is none such."""
        if self.kind == "flag":
            return text is not None
        if not text:
            if self.is_required and not self.takes_null:
                raise InvalidRequest(f"{self.path} is required", field=self.path)
            return None if self.is_required else _LEFT_OUT
        return _READERS[self.kind](self, text)


class ArgsForm(NamedTuple):
    """The form of one schema: fields, or None if only JSON can state such arguments."""

    fields: tuple[FormField, ...] | None
    is_object: bool
    skeleton: str

    @classmethod
    def of(cls, schema: Any) -> ArgsForm:
        """Return the form of a schema; None, the schema of handlers without arguments, has no fields."""
        if schema is None:
            return cls((), False, "")
        if not isinstance(schema, Mapping):
            return cls(None, False, "")
        fields = fields_of(schema)
        return cls(fields, _is_object(schema), skeleton_of(schema) if fields is None else "")

    def read(self, submitted: Submitted) -> Any:
        """Return the arguments that a form states: those in JSON, or else those of the fields."""
        text = submitted.get(AS_JSON, "").strip()
        if text or self.fields is None:
            return decode(text.encode(), field="args") if text else None
        return value_of(self.fields, submitted, is_object=self.is_object)


def call_form(published: Published, name: str) -> ArgsForm:
    """Return the form of a call; for one of which no schema is published, that of any JSON."""
    calls = published.schemas.get("calls") or {}
    return ArgsForm.of(calls[name].get("args")) if name in calls else ArgsForm.of(_UNKNOWN)


def start_form(published: Published) -> ArgsForm:
    """Return the form of a start; of a namespace that has published no schemas, that of any JSON."""
    schemas = published.schemas
    return ArgsForm.of(_UNKNOWN if published.is_raw or not schemas else schemas.get("init"))


def repair_form(published: Published) -> ArgsForm:
    """Return the form of the repair handler."""
    return ArgsForm.of(_UNKNOWN if published.is_raw else published.schemas.get("repair"))


_UNKNOWN: Mapping[str, Any] = MappingProxyType({})
_LEFT_OUT: Any = object()


def fields_of(schema: Mapping[str, Any]) -> tuple[FormField, ...] | None:
    """Return the fields for an object of scalars, required first, or for one scalar; None for others."""
    if not _is_object(schema):
        alone = _field("", schema, schema, is_required="default" not in schema)
        return None if alone is None else (alone,)
    members, required = schema.get("properties"), schema.get("required") or ()
    is_flat = schema.keys() <= _OF_FLAT_OBJECTS and not schema.get("additionalProperties")
    if not is_flat or not isinstance(members, dict) or len(members) > _MOST_FIELDS:
        return None
    found = []
    for name in sorted(members, key=lambda each: each not in required):
        field = _field(name, members[name], schema, is_required=name in required)
        if field is None or not name:
            return None
        found.append(field)
    return tuple(found)


def value_of(fields: tuple[FormField, ...], submitted: Submitted, *, is_object: bool) -> Any:
    """Return the arguments that submitted fields state; InvalidRequest names the first that is wrong."""
    read = {each.name: each.read(submitted.get(each.key)) for each in fields}
    stated = {name: value for name, value in read.items() if value is not _LEFT_OUT}
    return stated if is_object else stated.get("")


def skeleton_of(schema: Any) -> str:
    """Return arguments of a schema to begin with, as JSON on many lines; empty if it says nothing."""
    example = _example(schema, schema, _DEEPEST)
    return "" if example is None else to_json(example, indent=2)


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object"


def _field(name: str, schema: Any, root: Mapping[str, Any], *, is_required: bool) -> FormField | None:
    """Return the field of one scalar; None if the schema takes anything else too."""
    found = _resolved(schema, root)
    kinds, takes_null = _alternatives(found, root)
    if kinds is None:
        return None
    (core, *others) = kinds
    kind: FieldKind | None = _KINDS.get(str(core.get("type")))
    choices = _choices(core, takes_null=takes_null)
    if others:
        # A Decimal takes a number or a text; the text loses no digit.
        kind = "exact" if {str(each.get("type")) for each in kinds} == {"number", "string"} else None
    elif choices:
        kind = "choice"
    if kind is None:
        return None
    default = found.get("default")
    stated = default if isinstance(default, str) else to_json(default)
    return FormField(
        name,
        kind,
        is_required,
        takes_null,
        None if default is None else stated,
        str(found.get("description", "")),
        _hint(core),
        choices,
    )


def _resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with what it refers to among the definitions of its root, and its own facts."""
    found = dict(schema) if isinstance(schema, Mapping) else {}
    for _ in range(_DEEPEST):
        name = str(found.pop("$ref", "")).removeprefix("#/$defs/")
        if not name:
            break
        known = (root.get("$defs") or {}).get(name)
        found = {**known, **found} if isinstance(known, dict) else found
    return found


def _alternatives(
    schema: Mapping[str, Any], root: Mapping[str, Any]
) -> tuple[list[dict[str, Any]] | None, bool]:
    """Return the schemas of which a value fits one, without that of null, and whether null fits."""
    if "anyOf" in schema:
        every = [_resolved(each, root) for each in schema["anyOf"]]
    elif isinstance(schema.get("type"), list):
        every = [{**schema, "type": each} for each in schema["type"]]
    else:
        every = [dict(schema)]
    kinds = [each for each in every if each.get("type") != "null"]
    return kinds or None, len(kinds) < len(every)


def _choices(schema: Mapping[str, Any], *, takes_null: bool) -> tuple[Choice, ...]:
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    if schema.get("type") == "boolean" and takes_null:
        values = [True, False]
    if any(isinstance(each, dict | list) for each in values):
        return ()
    return tuple(Choice(to_json(each), each if isinstance(each, str) else to_json(each)) for each in values)


def _hint(schema: Mapping[str, Any]) -> str:
    """Return the limits of a value, in words."""
    parts = []
    if schema.get("format") in _FORMATS:
        parts.append(f"as {_FORMATS[schema['format']]}")
    for name, words in (*_LIMITS, *_UPPER_LIMITS):
        if name in schema:
            parts.append(f"{words} {to_json(schema[name])}")
    if "maxLength" in schema:
        parts.append(f"at most {schema['maxLength']} characters")
    return ", ".join(parts)


def _whole(field: FormField, text: str) -> int:
    if not _WHOLE.fullmatch(text.strip()):
        raise InvalidRequest(f"{field.path} must be a whole number, such as 17", field=field.path)
    return int(text)


def _number(field: FormField, text: str) -> int | float:
    text = text.strip()
    if _WHOLE.fullmatch(text):
        return int(text)
    value = float(text) if _NUMBER.fullmatch(text) else math.inf
    if not math.isfinite(value):
        raise InvalidRequest(f"{field.path} must be a number, such as 17 or 1.5", field=field.path)
    return value


def _exact(field: FormField, text: str) -> str:
    _number(field, text)
    return text.strip()


def _chosen(field: FormField, text: str) -> Any:
    if text not in {each.value for each in field.choices}:
        known = ", ".join(each.label for each in field.choices)
        raise InvalidRequest(f"{field.path} must be one of {known}", field=field.path)
    return decode(text.encode(), field=field.path)


_READERS: Mapping[FieldKind, Callable[[FormField, str], Any]] = MappingProxyType(
    {"text": lambda _, text: text, "whole": _whole, "number": _number, "exact": _exact, "choice": _chosen}
)


def _example(schema: Any, root: Any, depth: int) -> Any:
    """Return a value that shows the members of a schema; None where it says nothing."""
    found = _resolved(schema, root)
    if depth == 0 or "default" in found:
        return found.get("default")
    if "enum" in found or "const" in found:
        return found["const"] if "const" in found else next(iter(found["enum"]), None)
    for several in ("anyOf", "oneOf", "allOf"):
        if found.get(several):
            return _example(found[several][0], root, depth - 1)
    match found.get("type"):
        case "object":
            members = (found.get("properties") or {}).items()
            return {name: _example(each, root, depth - 1) for name, each in members}
        case "array":
            item = _example(found.get("items"), root, depth - 1)
            return [] if item is None else [item]
        case kind:
            return {"string": "", "integer": 0, "number": 0, "boolean": False}.get(str(kind))
