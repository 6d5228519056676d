"""Faults of a stored state: the reasons for which a namespace's type cannot read it.

Rule: a fault names a field and a rule, never a value. The texts of a user's own validators may quote one,
so they are left out.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, get_args

from pydantic import ValidationError
from pydantic_core.core_schema import ErrorType

from progressor.codecs.codec import Owning
from progressor.handlers.codec import Wire
from progressor.handlers.state.shape import StateShape

# Errors whose texts quote the value, or are a user's own.
_QUOTING = {"value_error", "assertion_error", "union_tag_invalid"}
_SILENT: Final = {*get_args(ErrorType)} - _QUOTING


class StateFault(NamedTuple):
    """A fault of a stored state: its field, and the rule that this breaks."""

    field: str
    rule: str


def state_faults(
    stored: bytes | None, *, wire: Wire, shape: StateShape, of: Owning
) -> tuple[StateFault, ...]:
    """Return the faults of a stored state, none if `shape` reads it; None is no state, and has none."""
    if stored is None:
        return ()
    try:
        plain = wire.unseal(stored, "state", of)
    except Exception as error:  # noqa: BLE001 - the user's codec may raise anything
        return (StateFault("state", f"the codec raised {type(error).__name__}"),)
    try:
        shape.read(plain)
    except ValidationError as error:
        return tuple(
            StateFault(".".join(["state", *map(str, each["loc"])]), _rule(each))
            for each in error.errors(include_url=False, include_input=False)
        )
    except Exception as error:  # noqa: BLE001 - a validator of the user may raise anything
        return (StateFault("state", f"a validator raised {type(error).__name__}"),)
    return ()


def _rule(fault: Any) -> str:
    kind: str = fault["type"]
    if kind in _SILENT:
        text: str = fault["msg"]
        return text
    if kind == "union_tag_invalid":
        return f"Input tag must be one of {fault['ctx']['expected_tags']}"
    raised = fault.get("ctx", {}).get("error")
    return f"a validator refuses it ({kind if raised is None else type(raised).__name__})"
