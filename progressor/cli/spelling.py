"""Errors of the library in the spelling of the command line.

Rule: the library names what a caller in Python gives: `idempotency_key=`, or `limit` at the beginning. A
user of a command has typed `--idempotency-key`, `--limit`, ARGS. Other words stay as they are: a value that
somebody typed may be one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from progressor.deployment.settings import Settings, variable_of

# name=, name=True, name='…'
_KEYWORD = re.compile(r"(?<![\w./'\"-])([a-z]\w*)=(?:(?:True|False)\b|(?=(['\"\w])?))")
# The setting of a bound: (max_value_bytes)
_SETTING = re.compile(r"\(([a-z]+_\w+)\)")


def spelling_of(command: Any) -> dict[str, str]:
    """Return what the user of a command types for each parameter, by its name in Python."""
    found: dict[str, str] = {}
    for each in _parameters(command):
        options = [option for option in each.opts if option.startswith("--")]
        if options:
            found.setdefault(options[0].removeprefix("--").replace("-", "_"), options[0])
        found[each.name] = options[0] if options else str(each.metavar or each.name.upper()).strip("[]")
    return found


def _parameters(command: Any) -> Iterator[Any]:
    yield from command.params
    for each in getattr(command, "commands", {}).values():
        yield from _parameters(each)


def spelled(text: str, spelling: Mapping[str, str], *, field: str | None = None) -> str:
    """Return the text of an error with keywords, and the field at its beginning, as they are typed."""

    def keyword(found: re.Match[str]) -> str:
        typed = spelling.get(found[1])
        return found[0] if typed is None else f"{typed} " if found[2] else typed

    def setting(found: re.Match[str]) -> str:
        return f"({variable_of(found[1])})" if found[1] in Settings.model_fields else found[0]

    text = _SETTING.sub(setting, _KEYWORD.sub(keyword, text))
    typed = None if field is None else spelling.get(field.partition(".")[0])
    if field is None or typed is None:
        return text
    # At the beginning, and of further faults: "args.n: too small; args.m: too large".
    name = re.escape(field.partition(".")[0])
    return re.sub(rf"(?:^(?:[A-Z]\w*\.)?|(?<=; )){name}\b", lambda _: typed, text)
