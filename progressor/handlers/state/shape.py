"""The type of a namespace's states: JSON to a checked value, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from progressor.errors import InvalidState
from progressor.handlers.codec import Shape, cannot_be_json, faults, require_finite
from progressor.handlers.state.unknown_fields import Fields, UnknownField, with_unknown


class StateShape(Shape):
    """The declared type of a state: what it writes it can read, and unknown fields are kept."""

    __slots__ = ("_class", "_fields", "_read_known", "_round_trip")

    def __init__(self, declared: Any) -> None:
        super().__init__(declared, field="state")
        modelled = isinstance(declared, type) and (
            issubclass(declared, BaseModel) or is_dataclass(declared)
        )
        self._class = declared if modelled else object
        self._round_trip = partial(
            self._adapter.serializer.to_json, round_trip=True, by_alias=False, warnings=False
        )
        fields = Fields(self._adapter.core_schema)
        self._fields = fields if fields.keep_unknown else None
        self._read_known: Callable[[bytes], Any] = partial(
            self._adapter.validator.validate_json, by_alias=True, by_name=True, extra="forbid"
        )

    @property
    def keeps_unknown(self) -> bool:
        """True if a stored state may have fields that are kept although the type does not know them."""
        return self._fields is not None

    def read_stored(self, plain: bytes) -> tuple[Any, Sequence[UnknownField]]:
        """Return the value of stored JSON, and its unknown fields; ValidationError if it does not fit."""
        if self._fields is None:
            return self.read(plain), ()
        try:
            # Most states have no unknown fields, so this is the only reading.
            value = self._read_known(plain)
        except ValidationError as error:
            value = self.read(plain)
            return value, self._fields.unknown(error, plain, value)
        return (value if self._fields.are_certain else self.read(plain)), ()

    def write_changed(
        self,
        value: Any,
        *,
        before: bytes | None,
        field: str,
        unknown: Sequence[UnknownField] = (),
    ) -> bytes | None:
        """Return JSON that `read` accepts, None if it is as before; InvalidState if it does not fit.

        `unknown` are the unknown fields before: each is written again if its owner is still there.
        """
        if not isinstance(value, self._class):
            raise InvalidState(f"{field} must be {self.name}, not {type(value).__name__}")
        try:
            data: bytes = self._round_trip(value)
        except (PydanticSerializationError, RecursionError) as error:
            raise InvalidState(str(cannot_be_json(value, field, error))) from None
        if unknown:
            data = _with_unknown(data, value, before, unknown)
        if data == before:
            return None
        require_finite(value, data, field=field)
        try:
            self.read(data)
        except ValidationError as error:
            raise InvalidState(f"{faults(error, field)} ({self.name})") from None
        return data


def _with_unknown(data: bytes, value: Any, before: bytes | None, unknown: Sequence[UnknownField]) -> bytes:
    """Return the JSON of a state with its unknown fields; as before if only the order of fields differs."""
    written = with_unknown(from_json(data), value, unknown)
    if before is not None and _in_order(written) == _in_order(from_json(before)):
        return before
    return to_json(written)


def _in_order(value: Any) -> str:
    # As JSON, because in Python 1, 1.0 and True are equal.
    return json.dumps(value, sort_keys=True)


ANY = StateShape(Any)
