"""The commands for the timers of a process: set-timer, unset-timer, fire-timer."""

from __future__ import annotations

from typing import Annotated

import typer

from progressor.cli.change import print_answer
from progressor.cli.options import (
    ASKING,
    AsJson,
    IdempotencyKey,
    NamespaceName,
    ProcessId,
    Timeout,
    read_duration,
    read_moment,
    with_settings,
)
from progressor.cli.output import visible
from progressor.cli.question import ask
from progressor.deployment.settings import Settings

TimerName = Annotated[
    str, typer.Argument(help="Name of the timer; without it the timer that has none.", show_default=False)
]


@with_settings(ASKING)
def set_timer(
    namespace: NamespaceName,
    process_id: ProcessId,
    timer: TimerName = "",
    *,
    at: Annotated[str | None, typer.Option("--at", help="Due time: ISO 8601.")] = None,
    after: Annotated[
        str | None, typer.Option("--after", help="Time until it is due: seconds, ISO 8601 or hh:mm:ss.")
    ] = None,
    remove: Annotated[
        bool,
        typer.Option("--remove", help="Remove the process when it fires, instead of running its handler."),
    ] = False,
    idempotency_key: IdempotencyKey = None,
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Set a timer of a process, in place of the one of this name: --at a time, or --after a while.

    The request waits for its turn, as a call does.
    `progressor set-timer billing.subscription acme dunning --after P1D`
    """
    if (at is None) == (after is None):
        raise typer.BadParameter("give one of --at and --after", param_hint="--at")
    moment, delay = read_moment(at, "--at"), read_duration(after, "--after")
    seconds = read_duration(timeout, "--timeout")
    ask(
        settings,
        lambda client: client.set_timer(
            namespace,
            process_id,
            timer,
            at=moment,
            after=delay,
            remove=remove,
            idempotency_key=idempotency_key,
            timeout=seconds,
        ),
    )
    print_answer(None, f"set the timer {_shown(timer)}of {namespace}/{process_id}", machine=json)


@with_settings(ASKING)
def unset_timer(
    namespace: NamespaceName,
    process_id: ProcessId,
    timer: TimerName = "",
    *,
    idempotency_key: IdempotencyKey = None,
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Cancel a timer of a process, if it has it. The request waits for its turn, as a call does."""
    seconds = read_duration(timeout, "--timeout")
    ask(
        settings,
        lambda client: client.unset_timer(
            namespace, process_id, timer, idempotency_key=idempotency_key, timeout=seconds
        ),
    )
    print_answer(None, f"unset the timer {_shown(timer)}of {namespace}/{process_id}", machine=json)


@with_settings(ASKING)
def fire_timer(
    namespace: NamespaceName,
    process_id: ProcessId,
    timer: TimerName = "",
    *,
    idempotency_key: IdempotencyKey = None,
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Make a timer of a process due now; status 1 if it has no such timer.

    The request waits for its turn, as a call does.
    """
    seconds = read_duration(timeout, "--timeout")
    ask(
        settings,
        lambda client: client.fire_timer(
            namespace, process_id, timer, idempotency_key=idempotency_key, timeout=seconds
        ),
    )
    print_answer(None, f"fired the timer {_shown(timer)}of {namespace}/{process_id}", machine=json)


def _shown(timer: str) -> str:
    return f"{visible(timer)} " if timer else ""
