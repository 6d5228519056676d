"""The commands for the timer of a process: set-timer, unset-timer, fire-timer."""

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
from progressor.cli.question import ask
from progressor.deployment.settings import Settings


@with_settings(ASKING)
def set_timer(
    namespace: NamespaceName,
    process_id: ProcessId,
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
    """Set the timer of a process, in place of the one that it has: --at a time, or --after a while.

    The request waits for its turn, as a call does.
    `progressor set-timer billing.subscription acme --after P1D`
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
            at=moment,
            after=delay,
            remove=remove,
            idempotency_key=idempotency_key,
            timeout=seconds,
        ),
    )
    print_answer(None, f"set the timer of {namespace}/{process_id}", machine=json)


@with_settings(ASKING)
def unset_timer(
    namespace: NamespaceName,
    process_id: ProcessId,
    *,
    idempotency_key: IdempotencyKey = None,
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Cancel the timer of a process, if it has one. The request waits for its turn, as a call does."""
    seconds = read_duration(timeout, "--timeout")
    ask(
        settings,
        lambda client: client.unset_timer(
            namespace, process_id, idempotency_key=idempotency_key, timeout=seconds
        ),
    )
    print_answer(None, f"unset the timer of {namespace}/{process_id}", machine=json)


@with_settings(ASKING)
def fire_timer(
    namespace: NamespaceName,
    process_id: ProcessId,
    *,
    idempotency_key: IdempotencyKey = None,
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Make the timer of a process due now; status 1 if it has none.

    The request waits for its turn, as a call does.
    """
    seconds = read_duration(timeout, "--timeout")
    ask(
        settings,
        lambda client: client.fire_timer(
            namespace, process_id, idempotency_key=idempotency_key, timeout=seconds
        ),
    )
    print_answer(None, f"fired the timer of {namespace}/{process_id}", machine=json)
