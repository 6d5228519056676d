"""The wait for the answer to a request that is accepted: after a moment it says what it waits for.

Rule: the line goes to stderr, and to people alone. Machines get the same facts with the error in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from progressor.cli.output import clock, note
from progressor.cli.question import ask
from progressor.client.client import Client
from progressor.client.results import Receipt
from progressor.deployment.settings import Settings
from progressor.errors import ProgressorError, ReplyTimeout
from progressor.errors.wordings import counted
from progressor.model import shown_id

# What is answered within this time is answered at once.
_MOMENT = timedelta(seconds=2)


Submit = Callable[[Client], Awaitable[Receipt]]


def ask_patiently(
    settings: Settings, submit: Submit, timeout: timedelta | None, *, machine: bool, values: bool = True
) -> Any:
    """Have a client submit a request, and return its answer, or raise its error.

    ReplyTimeout after `timeout`, None for that of the settings. `values` as of `ask`.
    """
    patience = settings.reply_timeout if timeout is None else timeout

    async def answer(client: Client) -> Any:
        return await _answer(client, await submit(client), patience, machine=machine)

    return ask(settings, answer, values=values)


async def _answer(client: Client, receipt: Receipt, timeout: timedelta, *, machine: bool) -> Any:
    if machine or timeout <= _MOMENT:
        return await client.answer(receipt, timeout=timeout)
    try:
        return await client.answer(receipt, timeout=_MOMENT)
    except ReplyTimeout as late:
        why = _reason(late) or await _hold(client, receipt)
        note(f"{why}; the request is kept: Ctrl-C leaves it, and it still runs")
    return await client.answer(receipt, timeout=timeout - _MOMENT)


def _reason(late: ReplyTimeout) -> str | None:
    """Return what a request waits for, and the command that helps; None if no worker or turn is missing."""
    namespace = late.namespace
    if late.paused:
        return f"the namespace {namespace} is paused: `progressor resume {namespace}` lets it go on"
    if not late.served:
        return f"no live worker serves the namespace {namespace}: `progressor worker APP` is one"
    if late.requests_before:
        return f"waiting for requests that came before it: {counted(late.requests_before)}"
    return None


async def _hold(client: Client, receipt: Receipt) -> str:
    """Return what holds a request whose turn it is: the step that runs, a time, a group or a rate."""
    found = None
    # It is a hint: the answer is waited for in any case.
    with suppress(TimeoutError, ProgressorError):
        async with asyncio.timeout(_MOMENT.total_seconds()):
            found = None if receipt.task is None else await client.reader.task_hold(receipt.task)
    if found is not None and found.worker_id is not None:
        is_own = found.running_id == receipt.task_id
        what = "it runs" if is_own else "waiting for the step that runs on its process,"
        return f"{what} on worker {shown_id(found.worker_id)}"
    if found is not None and found.held_until is not None:
        return f"waiting until {clock(found.held_until)}, for the pause after the step before it"
    if found is not None and found.group_name is not None:
        most = found.group_limit
        limit = "" if most is None else f", of which at most {most:,} run at once"
        what = f"room in the group {found.group_name}{limit}"
    else:
        what = f"a worker of the namespace {receipt.namespace}"
    rate = ", or for its rate" if found is not None and found.has_rate else ""
    return f"waiting for {what}{rate}"
