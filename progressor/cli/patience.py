"""The wait for the answer to a request that is accepted: after a moment it says what it waits for.

Rule: the line goes to stderr, and to people alone. Machines get the same facts with the error in the end.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from progressor.cli.output import note
from progressor.client.client import Client
from progressor.client.results import Receipt
from progressor.errors import ReplyTimeout
from progressor.errors.wordings import counted

# What is answered within this time is answered at once.
_MOMENT = timedelta(seconds=2)


async def patient_answer(client: Client, receipt: Receipt, timeout: timedelta, *, machine: bool) -> Any:
    """Return the answer to a request, or raise its error; ReplyTimeout after `timeout`."""
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
