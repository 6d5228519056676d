"""Members of JSON documents that hold a value.

Rule: a value's own content decides nothing. JSON stands under its name. Bytes stand under that name with
`_base64` behind it, and the member of the name alone is null.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

IN_BASE64 = "_base64"


def members_for(name: str, value: Any) -> dict[str, Any]:
    """Return the members that hold a value."""
    if isinstance(value, bytes):
        return {name: None, name + IN_BASE64: b64encode(value).decode()}
    return {name: value}


def holds_bytes(document: Mapping[str, Any], name: str) -> bool:
    """Return whether the value of this name is bytes."""
    return document.get(name + IN_BASE64) is not None


def value_in(document: Mapping[str, Any], name: str) -> Any:
    """Return the value of this name, None if there is none; ValueError if its bytes are not in base64."""
    if holds_bytes(document, name):
        return b64decode(document[name + IN_BASE64], validate=True)
    return document.get(name)
