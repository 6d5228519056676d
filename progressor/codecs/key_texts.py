"""Keys as texts: in a variable of the environment, or in a file that few may read.

Rule: an error names the variable or the file and the rule, and never quotes a part of the text.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from pathlib import Path
from stat import S_IRWXO, S_ISREG, S_IWGRP

from progressor.codecs.envelope import PLAIN, check_kid
from progressor.errors import InvalidRequest

_FORM = "must be keys as KID:BASE64, with commas or on lines of their own, the active key first"
_BETWEEN = re.compile(r"[,\s]+")
_MOST_BYTES = 1 << 16


def read(text: str, *, field: str) -> tuple[str | None, dict[str, bytes]]:
    """Return the active key id, None for `plain`, and the keys of a text; raise InvalidRequest."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    parts = [part for part in _BETWEEN.split("\n".join(lines)) if part]
    if not parts:
        raise InvalidRequest(f"{field} is empty or not set: it {_FORM}", field=field)
    is_plain = parts[0] == PLAIN
    keys: dict[str, bytes] = {}
    for part in parts[is_plain:]:
        kid, colon, key = part.partition(":")
        if not colon:
            raise InvalidRequest(f"{field} {_FORM}", field=field)
        check_kid(kid, field=field)
        if kid in keys:
            raise InvalidRequest(f"{field} has the key {kid!r} twice", field=field)
        keys[kid] = _decoded(key, kid, field=field)
    return None if is_plain else next(iter(keys)), keys


def _decoded(key: str, kid: str, *, field: str) -> bytes:
    try:
        return b64decode(key, validate=True)
    except ValueError:
        raise InvalidRequest(f"{field}: the key {kid!r} is not in base64", field=field) from None


def read_file(path: Path) -> tuple[str | None, dict[str, bytes]]:
    """Return the active key id and the keys of a file; raise InvalidRequest, also if all may read it."""
    field = str(path)
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            if not S_ISREG(facts.st_mode):
                raise InvalidRequest(f"{field} is not a file", field=field)
            if os.name == "posix" and facts.st_mode & (S_IRWXO | S_IWGRP):
                raise InvalidRequest(
                    f"{field} must be closed to all but its owner, and to its group but to read "
                    "(chmod 600 or 640)",
                    field=field,
                )
            data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise InvalidRequest(f"{field} is larger than {_MOST_BYTES} bytes", field=field)
            text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidRequest(f"{field} cannot be read: {why}", field=field) from None
    return read(text, field=field)
