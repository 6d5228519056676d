"""The start of an engine: the schedules that its code declares are begun, or told what has changed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from progressor.client.client import Client
from progressor.errors import InvalidState, ProcessAlreadyExists, ProcessBroken, ProcessNotFound
from progressor.errors.wordings import SCHEDULES
from progressor.handlers.namespace import Namespace
from progressor.handlers.process import Process
from progressor.loggers import Logger
from progressor.schedules.process import declare
from progressor.schedules.state import Declaration, ScheduleState

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
        try:
            await _declare(client, known.get(process_id), process_id, declaration)
        except (ProcessBroken, ProcessNotFound, InvalidState) as error:
            # Broken, it is declared anew by the next start; removed meanwhile, it was begun for nothing.
            # One whose state a newer release wrote is left to that.
            log.warning("schedule not declared", extra={"process_id": process_id, "cause": str(error)})


async def _declare(
    client: Client, known: Process[ScheduleState] | None, process_id: str, declaration: Declaration
) -> None:
    if known is None:
        with suppress(ProcessAlreadyExists):
            await client.submit_start(SCHEDULES, process_id, declaration)
            return
    elif known.state is not None and known.state.declaration == declaration:
        return
    await client.notify(declare, process_id, declaration)


async def _known(client: Client) -> dict[str, Process[ScheduleState]]:
    """Return the schedules that exist; the state of one that has not begun is None."""
    found: dict[str, Process[ScheduleState]] = {}
    cursor: str | None = None
    while True:
        page = await client.search(namespace=SCHEDULES, limit=_PAGE, cursor=cursor)
        found |= {each.process_id: each for each in page.items}
        cursor = page.cursor
        if cursor is None:
            return found
