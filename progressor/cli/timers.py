"""The commands for the timers of a process: set-timer, unset-timer, fire-timer."""

from __future__ import annotations

from datetime import time, timedelta
from typing import Annotated, Any

import typer

from progressor.calendars import Cron, RRule, Rule
from progressor.cli.options import (
    ACTING,
    AsJson,
    IdempotencyKey,
    NamespaceName,
    ProcessId,
    Timeout,
    with_settings,
)
from progressor.cli.output import print_answer
from progressor.cli.question import ask
from progressor.cli.values import read_delay, read_duration, read_moment
from progressor.client.client import Client
from progressor.deployment.settings import Settings
from progressor.texts import visible
from progressor.timers import SetTimer

_UTC = "UTC"

TimerName = Annotated[str, typer.Argument(help="Name of the timer; without it the timer that has none.")]


@with_settings(ACTING)
def set_timer(
    namespace: NamespaceName,
    process_id: ProcessId,
    timer: TimerName = "",
    *,
    at: Annotated[str | None, typer.Option(help="Due time: ISO 8601.")] = None,
    after: Annotated[
        str | None, typer.Option(help="Time until it is due: seconds, ISO 8601 or hh:mm:ss.")
    ] = None,
    remove: Annotated[
        bool,
        typer.Option("--remove", help="Remove the process when it fires, instead of running its handler."),
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(
            help='Recur: a period (P1D), a cron rule ("0 9 1 * *") or an RRULE that counts from --at.'
        ),
    ] = None,
    tz: Annotated[
        str | None,
        typer.Option(help="Time zone of a rule of --every, and of --between.", show_default="UTC"),
    ] = None,
    drift: Annotated[
        str, typer.Option(help="fixed, or after: a period counts from the end of each step.")
    ] = "fixed",
    catch_up: Annotated[
        str, typer.Option(help="What becomes of times that were missed: one, all or skip.")
    ] = "one",
    within: Annotated[
        str | None, typer.Option(help="How late a time may be and still count: a duration.")
    ] = None,
    jitter: Annotated[
        str | None, typer.Option(help="Delay it by up to so much, each time the same.")
    ] = None,
    between: Annotated[
        str | None, typer.Option(help="Wait for these hours of the day: 08:00-18:00.")
    ] = None,
    idempotency_key: IdempotencyKey = None,
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Set a timer of a process, in place of the one of this name: --at, --after, or --every so often.

    The request waits for its turn, as a call does.
    `progressor set-timer billing.subscription acme dunning --after P1D`
    `progressor set-timer billing.subscription acme invoice --every "0 9 1 * *" --tz Europe/Berlin`
    """
    if (at is not None and after is not None) or (at, after, every) == (None, None, None):
        raise typer.BadParameter("give one of --at, --after and --every", param_hint="--at")
    moment, rule = read_moment(at, "--at"), None if every is None else _every(every, tz or _UTC, at)
    if tz is not None and between is None and not isinstance(rule, Cron | RRule):
        raise typer.BadParameter(
            "it is the time zone of --between, or of a calendar rule of --every: give one",
            param_hint="--tz",
        )
    stated: dict[str, Any] = {
        "at": moment,
        "after": read_delay(after, "--after"),
        "remove": remove,
        "every": rule,
        "drift": drift,
        "catch_up": catch_up,
        "within": read_duration(within, "--within"),
        "jitter": read_duration(jitter, "--jitter"),
        "between": None if between is None else _between(between, tz or _UTC),
    }
    # What is wrong is refused before a database is looked for.
    SetTimer(name=timer, **stated)
    common = _common(idempotency_key, timeout)
    ask(settings, lambda client: client.set_timer(namespace, process_id, timer, **stated, **common))
    print_answer(None, f"set the timer {_shown(timer)}of {namespace}/{process_id}", machine=json)


@with_settings(ACTING)
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
    common = _common(idempotency_key, timeout)

    async def unset(client: Client) -> list[str]:
        there = await client.get(namespace, process_id, range=None, timeout=common["timeout"])
        await client.unset_timer(namespace, process_id, timer, **common)
        return list(there.timers)

    names = ask(settings, unset)
    of = f"{namespace}/{process_id}"
    done = f"unset the timer {_shown(timer)}of {of}"
    if timer not in names:
        others = ", ".join(visible(name) if name else "one without a name" for name in names) or "none"
        done = f"{of} had no timer {_shown(timer)}when this was asked; its timers: {others}"
    print_answer(None, done, machine=json)


@with_settings(ACTING)
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
    common = _common(idempotency_key, timeout)
    ask(settings, lambda client: client.fire_timer(namespace, process_id, timer, **common))
    print_answer(None, f"fired the timer {_shown(timer)}of {namespace}/{process_id}", machine=json)


def _common(idempotency_key: str | None, timeout: str | None) -> dict[str, Any]:
    return {"idempotency_key": idempotency_key, "timeout": read_duration(timeout, "--timeout")}


def _every(text: str, tz: str, at: str | None) -> timedelta | Rule:
    """Return the period or the rule that a text states; InvalidRequest or BadParameter if it is none."""
    if "FREQ=" in text.upper():
        start = read_moment(at, "--at")
        if start is None:
            raise typer.BadParameter("an RRULE counts from --at: give it", param_hint="--every")
        return RRule(text, start, tz=tz)
    if text.startswith("@") or " " in text.strip():
        return Cron(text, tz=tz)
    return read_duration(text, "--every") or timedelta()


def _between(text: str, tz: str) -> tuple[time, time, str]:
    opens, _, closes = text.partition("-")
    try:
        return time.fromisoformat(opens.strip()), time.fromisoformat(closes.strip()), tz
    except ValueError:
        raise typer.BadParameter(
            "it must be two times of a day: 08:00-18:00", param_hint="--between"
        ) from None


def _shown(timer: str) -> str:
    return f"{visible(timer)} " if timer else ""
