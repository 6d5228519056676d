"""Values and the bytes of the tables: JSON, and a codec over it if the namespace has one.

Rule: what is written can be read back. NaN, Infinity and values that have no JSON form are refused when
they are written, by an error that names the field; nothing is ever pickled.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic_core import PydanticSerializationError, from_json, to_json

from progressor.codecs.codec import (
    Codec,
    Owning,
    PlacedCodec,
    RotatingCodec,
    ValueKind,
    ValuePlace,
    placed,
)
from progressor.errors import InvalidRequest, Undecryptable
from progressor.errors.wordings import fault_text
from progressor.model import Event, Metadata

_MAX_DEPTH = 20
# Levels, and digits: JSON that nests deeper, or has a longer number, may not be readable again.
_DEEPEST, _LONGEST_NUMBER = 200, 4300
_SURELY_READABLE = 2 * _DEEPEST
_MAX_FAULTS = 5
# Bytes; a number beyond a double's has three digits in its exponent, or so many before it.
_SURELY_IN_RANGE = 200
# It begins with a set of bytes: `re` finds that several times faster than the first of two branches.
_MAY_OVERFLOW = re.compile(rb"[0-9](?:[eE]\+?0*[1-9][0-9]{2}|[0-9]{199})")


def encode(value: Any, *, field: str = "value") -> bytes | None:
    """Return the JSON of any value; None stays None, and bytes count as encoded already."""
    if value is None or type(value) is bytes:
        return value
    return encode_json(value, field=field)


def encode_json(value: Any, *, field: str = "value", write: Callable[[Any], bytes] = to_json) -> bytes:
    """Return the JSON of any value, None included; InvalidRequest names the part that has none."""
    try:
        data = write(value)
    except (PydanticSerializationError, RecursionError) as error:
        raise cannot_be_json(value, field, error) from None
    require_finite(value, data, field=field)
    require_readable(data, field=field)
    return data


def decode(data: bytes | None, *, field: str = "value") -> Any:
    """Return the value of JSON bytes; None stays None. InvalidRequest if they are not JSON."""
    if data is None:
        return None
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidRequest(f"{field} is not JSON: {error}", field=field) from None


def decode_any(plain: bytes | None) -> Any:
    """Return the value of bytes, or the bytes if they are no JSON; None stays None."""
    if plain is None:
        return None
    try:
        return from_json(plain, allow_inf_nan=False)
    except ValueError:
        return plain


def json_object(value: Any, *, field: str) -> Metadata:
    """Return a mapping as plain JSON values for a jsonb column; InvalidRequest if it cannot hold it."""
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{field} must be a dict, not {type(value).__name__}", field=field)
    data = encode_json(value, field=field)
    plain: Metadata = from_json(data)
    if b"\\u0000" in data and _has_nul(plain):
        where = _locate(plain, field, _has_nul)
        raise InvalidRequest(f"{where} must not contain NUL characters", field=where)
    return plain


def fits_jsonb(value: Any) -> bool:
    """Return whether a jsonb column can hold a value: no NaN, Infinity, NUL or lone surrogate."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return not _has_nul(value)


def require_finite(value: Any, data: bytes, *, field: str) -> None:
    """Raise InvalidRequest if `value`, whose JSON is `data`, holds NaN or Infinity.

    Pydantic writes them as NaN or Infinity, which is no JSON, and within models as null, which is
    another value. So the value itself is searched, but only if the JSON hints at one.
    """
    if (b"null" in data or b"NaN" in data or b"Infinity" in data) and _has_non_finite(value):
        where = _locate(value, field, _has_non_finite)
        raise InvalidRequest(f"{where} must not be NaN or Infinity", field=where)


def require_readable(data: bytes, *, field: str) -> None:
    """Raise InvalidRequest for JSON that cannot be read again: too deep, or with too long a number."""
    if len(data) <= _SURELY_READABLE:
        return
    if len(data) > _LONGEST_NUMBER or data.count(b"[") + data.count(b"{") > _DEEPEST:
        try:
            from_json(data)
        except ValueError as error:
            reason = str(error).partition(" at line")[0]
            raise InvalidRequest(f"{field} could not be read again: {reason}", field=field) from None


def require_in_range(data: bytes, *, field: str) -> None:
    """Raise InvalidRequest if JSON of somebody else has NaN, or a number that a double cannot hold (1e400).

    It would be read as Infinity.
    """
    if _may_overflow(data) or b"NaN" in data or b"Infinity" in data:
        try:
            value = from_json(data)
        except ValueError:
            # The decoder raises an error that names what is wrong.
            return
        if _has_non_finite(value):
            where = _locate(value, field, _has_non_finite)
            rule = "must not be NaN, or larger than a double can hold"
            raise InvalidRequest(f"{where} {rule}", field=where)


def non_finite_part(value: Any, data: bytes, *, field: str) -> str | None:
    """Return the path of NaN or Infinity in a value that was read from this JSON; None if it has none.

    Pydantic reads them from texts too ("NaN", "-inf", "1e400"). One that the JSON does not spell is a
    default of the type, and stays.
    """
    hints = b"\\u" in data or _may_overflow(data)
    if not hints and (b"n" in data or b"N" in data):
        folded = data.lower()
        hints = b"nan" in folded or b"inf" in folded
    if not (hints and _has_non_finite(value)):
        return None
    # What a type passes over unread, such as a number that is too long, may be unreadable.
    with suppress(ValueError):
        if not _spells_non_finite(from_json(data)):
            return None
    return _locate(value, field, _has_non_finite)


def breaks_process(error: Exception) -> bool:
    """Return whether a codec's error about a request breaks its process; any other refuses the request.

    Refused, it would be lost: with the key, it runs. A plain one is of a client without the codec.
    """
    return isinstance(error, Undecryptable) and not error.is_plain


class Wire:
    """The wire of one namespace: values to the bytes of its rows, and back.

    Each value comes with its kind and the owner of it, a process by name: a codec may bind it to them.
    """

    __slots__ = ("_codec", "active_prefix")

    def __init__(self, codec: Codec | PlacedCodec | None = None) -> None:
        self._codec = None if codec is None else placed(codec)
        self.active_prefix = codec.active_prefix if isinstance(codec, RotatingCodec) else None
        """The bytes with which all values of the active key begin; None of a codec without keys."""

    @property
    def is_coded(self) -> bool:
        """True if a codec stands between the JSON and the tables."""
        return self._codec is not None

    def seal(self, plain: bytes, kind: ValueKind, of: Owning) -> bytes:
        """Return JSON as it is stored; TypeError if the codec returns no bytes."""
        if self._codec is None:
            return plain
        return self._codec.seal(plain, ValuePlace(of.namespace, of.process_id, kind))

    def unseal(self, stored: bytes, kind: ValueKind, of: Owning) -> bytes:
        """Return the JSON of stored bytes; TypeError if the codec returns no bytes."""
        if self._codec is None:
            return stored
        return self._codec.unseal(stored, ValuePlace(of.namespace, of.process_id, kind))

    def encode(self, value: Any, kind: ValueKind, of: Owning, *, field: str | None = None) -> bytes | None:
        """Return a value as it is stored; InvalidRequest if it has no JSON form."""
        plain = encode(value, field=field or kind)
        return None if plain is None else self.seal(plain, kind, of)

    def decode(self, stored: bytes | None, kind: ValueKind, of: Owning) -> Any:
        """Return the value of stored bytes; InvalidRequest if they are not JSON."""
        return None if stored is None else decode(self.unseal(stored, kind, of), field=kind)

    def decode_any(self, stored: bytes | None, kind: ValueKind, of: Owning) -> Any:
        """Return the value of stored bytes, or the bytes if they are no JSON (a raw handler wrote them)."""
        return None if stored is None else decode_any(self.unseal(stored, kind, of))

    def event(self, stored: Event, of: Owning) -> Event:
        """Return a stored event with its payload as a value."""
        payload = self.decode_any(stored.payload, "event", of)
        return Event(payload, stored.metadata, stored.event_id, stored.timestamp, stored.task_id)


class RawWire(Wire):
    """The wire of raw handlers: stored bytes stay bytes."""

    __slots__ = ()

    def decode(self, stored: bytes | None, _kind: ValueKind, _of: Owning) -> Any:
        return stored

    def decode_any(self, stored: bytes | None, _kind: ValueKind, _of: Owning) -> Any:
        return stored


class Shape:
    """One declared type, prepared once: JSON to a checked value and back."""

    __slots__ = ("_adapter", "_write", "name", "read")

    def __init__(self, declared: Any, *, field: str) -> None:
        self.name: str = getattr(declared, "__name__", None) or repr(declared)
        if isinstance(declared, dict | list | set | BaseModel) or declared == ():
            # pydantic would take a dict for a schema of its core.
            raise InvalidRequest(
                f"{field} must be a type (a model, dict[str, Any], int …), not the value {declared!r:.80}",
                field=field,
            )
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(declared)
            self._adapter.rebuild(raise_errors=True)
        except (PydanticUserError, NameError, TypeError) as error:
            raise InvalidRequest(
                f"{field} must be a type that pydantic knows, not {self.name}: "
                f"{str(error).splitlines()[0]}",
                field=field,
            ) from error
        # By name and by alias: a state is dumped under the names of the fields, and must be readable.
        self.read: Callable[[bytes], Any] = partial(
            self._adapter.validator.validate_json, by_alias=True, by_name=True
        )
        self._write: Callable[[Any], bytes] = partial(self._adapter.serializer.to_json, warnings=False)

    def write(self, value: Any, *, field: str) -> bytes:
        """Return the JSON of an answer; a value that does not fit the type is written as it is."""
        return encode_json(value, field=field, write=self._write)

    def schema(self, mode: Literal["validation", "serialization"]) -> dict[str, Any] | None:
        """Return the type's JSON schema; None if it has none."""
        try:
            return self._adapter.json_schema(mode=mode)
        except (PydanticInvalidForJsonSchema, PydanticSerializationError):
            return None


def faults(error: ValidationError, root: str) -> str:
    """Return the faults of a ValidationError, each with its place and without its value."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    texts = [f"{'.'.join([root, *map(str, fault['loc'])])}: {fault_text(fault)}" for fault in found]
    more = [f"and {len(texts) - _MAX_FAULTS} more"] if len(texts) > _MAX_FAULTS else []
    return "; ".join(texts[:_MAX_FAULTS] + more)


def first_fault(error: ValidationError, root: str) -> str:
    """Return the path of the first field that is wrong."""
    return ".".join([root, *map(str, error.errors(include_url=False)[0]["loc"])])


def cannot_be_json(value: Any, field: str, error: Exception) -> InvalidRequest:
    """Return the error of a value without a JSON form; it names the part that has none."""
    where = _locate(value, field, _has_no_json)
    reason = str(error).removeprefix("Error serializing to JSON: ")
    return InvalidRequest(f"{where} has no JSON form: {reason}", field=where)


def _locate(value: Any, path: str, is_bad: Callable[[Any], bool]) -> str:
    for _ in range(_MAX_DEPTH):
        for name, part in _parts(value):
            if is_bad(part):
                value, path = part, f"{path}.{name}"
                break
        else:
            break
    return path


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    match value:
        case Mapping():
            yield from value.items()
        case list() | tuple() | set() | frozenset():
            yield from enumerate(value)
        case BaseModel():
            yield from value
        case _ if is_dataclass(value) and not isinstance(value, type):
            yield from ((each.name, getattr(value, each.name, None)) for each in fields(value))


def _has_non_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return any(_has_non_finite(part) for _, part in _parts(value))


def _spells_non_finite(value: Any) -> bool:
    if isinstance(value, str):
        try:
            return not math.isfinite(float(value))
        except ValueError:
            return False
    if isinstance(value, float):
        return not math.isfinite(value)
    return any(_spells_non_finite(part) for _, part in _parts(value))


def _may_overflow(data: bytes) -> bool:
    hints = b"e" in data or b"E" in data or len(data) > _SURELY_IN_RANGE
    return hints and _MAY_OVERFLOW.search(data) is not None


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, Mapping) and any(_has_nul(key) for key in value):
        return True
    return any(_has_nul(part) for _, part in _parts(value))


def _has_no_json(value: Any) -> bool:
    try:
        to_json(value)
    except (PydanticSerializationError, RecursionError):
        return True
    return False


JSON = Wire()
RAW = RawWire()
