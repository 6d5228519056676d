"""The wait for the answer to a request that is accepted: after a moment it says what it waits for.

Rule: the line goes to stderr, and to people alone. Machines get the same facts with the error in the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from progressor.cli.output import note
from progressor.cli.question import ask
from progressor.client.client import Client
from progressor.client.results import Receipt
from progressor.deployment.settings import Settings
from progressor.errors import ReplyTimeout
from progressor.errors.wordings import counted

# What is answered within this time is answered at once.
_MOMENT = timedelta(seconds=2)


Submit = Callable[[Client], Awaitable[Receipt]]


def ask_patiently(settings: Settings, submit: Submit, timeout: timedelta | None, *, machine: bool) -> Any:
    """Have a client submit a request, and return its answer, or raise its error.

    ReplyTimeout after `timeout`, None for that of the settings.
    """
    patience = settings.reply_timeout if timeout is None else timeout

    async def answer(client: Client) -> Any:
        return await _answer(client, await submit(client), patience, machine=machine)

    return ask(settings, answer)


async def _answer(client: Client, receipt: Receipt, timeout: timedelta, *, machine: bool) -> Any:
    if machine or timeout <= _MOMENT:
        return await client.answer(receipt, timeout=timeout)
    try:
        return await client.answer(receipt, timeout=_MOMENT)
    except ReplyTimeout as late:
        note(f"{_reason(late)}; the request is kept: Ctrl-C leaves it, and it still runs")
    return await client.answer(receipt, timeout=timeout - _MOMENT)


def _reason(late: ReplyTimeout) -> str:
    """Return what a request waits for, and the command that helps."""
    namespace = late.namespace
    if late.paused:
        return f"the namespace {namespace} is paused: `progressor resume {namespace}` lets it go on"
    if not late.served:
        return f"no live worker serves the namespace {namespace}: `progressor worker APP` is one"
    if late.requests_before:
        return f"waiting for requests that came before it: {counted(late.requests_before)}"
    return f"waiting for a worker of the namespace {namespace}"
