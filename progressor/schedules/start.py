"""The start of an engine: the schedules that its code declares are begun, or told what has changed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from progressor.client.client import Client
from progressor.errors import ProcessAlreadyExists, ProcessBroken, ProcessNotFound
from progressor.handlers.namespace import Namespace
from progressor.handlers.schedules import SCHEDULES
from progressor.loggers import Logger
from progressor.schedules.process import declare
from progressor.schedules.state import Declaration

log = Logger("progressor.schedules")

_PAGE = 1_000


async def declare_all(client: Client, namespaces: Iterable[Namespace[Any]]) -> None:
    """Begin the schedules of these namespaces that are new, and notify those whose declaration changed.

    Raise StorageUnavailable if PostgreSQL does not answer.
    """
    declared = {
        schedule.process_id: Declaration.of(schedule)
        for namespace in namespaces
        for schedule in namespace.schedules.values()
    }
    if not declared:
        return
    known = await _known(client)
    for process_id, declaration in declared.items():
        if known.get(process_id) == declaration:
            continue
        if process_id not in known:
            with suppress(ProcessAlreadyExists):
                await client.submit_start(SCHEDULES, process_id, declaration)
                continue
        try:
            await client.notify(declare, process_id, declaration)
        except (ProcessBroken, ProcessNotFound) as error:
            # Broken, it is declared anew by the next start; removed meanwhile, it was begun for nothing.
            log.warning("schedule not declared", extra={"process_id": process_id, "cause": str(error)})


async def _known(client: Client) -> dict[str, Declaration | None]:
    """Return the schedules that exist, with their declarations; None for one that has not begun."""
    found: dict[str, Declaration | None] = {}
    cursor: str | None = None
    while True:
        page = await client.search(namespace=SCHEDULES, limit=_PAGE, cursor=cursor)
        found |= {each.process_id: each.state and each.state.declaration for each in page.items}
        cursor = page.cursor
        if cursor is None:
            return found
