"""Looks before a bulk is made: at its ARGS, and at what its filter matches.

Rule: they write nothing. ARGS are compared with the published schema, as the API and the console do it.
"""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any

from progressor.bulks import BulkPreview
from progressor.cli.output import note
from progressor.client.bulk_repairs import check_bulk_args
from progressor.client.client import Client
from progressor.errors import InvalidRequest
from progressor.model import TaskType
from progressor.texts import visible

Filter = dict[str, str | None]
"""The options of the command that choose processes: `detail_like` and `handler`."""

# Broken processes that are looked at, the newest first, and the most that are counted.
_LOOKS, _COUNTED = 10_000, 2000
# Handlers that a note names.
_SHOWN = 10


async def check_args(client: Client, namespace: str, args: Any, *, simple: bool) -> None:
    """Raise InvalidRequest if the repairs of this bulk do not take these ARGS; None if there are none."""
    check_bulk_args(args, simple=simple)
    if simple:
        return
    try:
        from progressor.http.server.problems import Refusal  # noqa: PLC0415 - an extra, which only this needs
        from progressor.http.server.schema_cache import NamespaceSchemas  # noqa: PLC0415 - likewise
    except ModuleNotFoundError as error:
        note(f"only each repair checks ARGS: a check before needs {error.name}, of the extra http")
        return
    try:
        await NamespaceSchemas(client).check(namespace, TaskType.REPAIR, None, args)
    except Refusal as refusal:
        raise InvalidRequest(refusal.detail, field=refusal.members["field"]) from None


async def without_match(client: Client, namespace: str, wanted: Filter) -> str | None:
    """Return what to say of a filter that matches nothing, with what broke there; None if it matches."""
    found = await client.reader.preview_newest(namespace, **wanted, looks=_LOOKS, most=1)
    if found.processes:
        return None
    given = " ".join(f"{_OPTIONS[name]} {shlex.quote(text)}" for name, text in wanted.items() if text)
    if not given or not found.looked_at:
        return f"no process of {namespace} is broken"
    there = await client.reader.preview_newest(
        namespace, detail_like=None, handler=None, looks=_LOOKS, most=_COUNTED
    )
    of = f"of the newest {found.looked_at:,} broken processes" if found.has_more else "that is broken"
    return (
        f"nothing {of} matches {given}: these broke there: {_handlers(there)}; "
        f"progressor repair --namespace {namespace} --dry-run shows them with their details"
    )


_OPTIONS = {"detail_like": "--detail-like", "handler": "--handler"}


def _handlers(found: BulkPreview) -> str:
    """Return the handlers that broke processes, each with how many, the most first."""
    counts = Counter[str]()
    for group in found.groups:
        counts[visible(group.handler or "no handler")] += group.processes
    more = "+" if found.has_more else ""
    return (
        ", ".join(f"{handler} ({many:,}{more})" for handler, many in counts.most_common(_SHOWN)) or "none"
    )
