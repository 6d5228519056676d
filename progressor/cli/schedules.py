"""The commands for schedules: schedules, and below it pause, resume, trigger and backfill."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text

from progressor.cli.options import (
    ACTING,
    ASKING,
    AsJson,
    IdempotencyKey,
    NamespaceName,
    Timeout,
    with_settings,
)
from progressor.cli.output import clock, note, print_answer
from progressor.cli.patience import ask_patiently
from progressor.cli.question import ask
from progressor.cli.tables import Listing, print_found
from progressor.cli.values import read_duration, read_moment
from progressor.client.client import Client
from progressor.client.results import Page
from progressor.deployment.settings import Settings
from progressor.errors import NamespaceNotFound, ScheduleNotFound
from progressor.handlers.process import Process
from progressor.inputs import check_text
from progressor.monitoring import KnownNamespace
from progressor.schedules import SCHEDULES, ScheduleState, Span
from progressor.texts import number_of, rule_text, short, visible

_PAGE = 1_000
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule in its namespace.")]

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    help="List schedules, or pause, resume, trigger and backfill one.",
    epilog="progressor schedules backfill billing nightly 2026-10-01T00:00Z 2026-11-01T00:00Z",
)


@app.callback()
@with_settings(ASKING)
def schedules(
    context: typer.Context,
    *,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only those that this namespace declares.")
    ] = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """List schedules: when each is due next, what it sends, and what it did last."""
    if context.invoked_subcommand is not None:
        return
    found, serving = ask(settings, lambda client: _found(client, namespace))
    nothing = "no schedule: `namespace.schedule(…)` declares one, and an engine that serves it begins it"
    print_found(found, _listing, nothing, machine=json, document=_plain)
    if found and not json:
        _warn(serving)


@app.command("pause")
@with_settings(ACTING)
def pause_schedule(
    namespace: NamespaceName,
    name: Name,
    *,
    reason: Annotated[str | None, typer.Option(help="Shown to all until it is resumed.")] = None,
    idempotency_key: IdempotencyKey = None,
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Send nothing more until it is resumed; times in between are passed over, and can be backfilled."""
    sent = _Call(namespace, name, "pause", reason or "", idempotency_key)
    _ask(settings, sent, timeout, machine=json)
    print_answer(None, f"paused the schedule {visible(name)} of {namespace}", machine=json)


@app.command("resume")
@with_settings(ACTING)
def resume_schedule(
    namespace: NamespaceName,
    name: Name,
    *,
    idempotency_key: IdempotencyKey = None,
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Send again, from the next time on."""
    _ask(settings, _Call(namespace, name, "resume", None, idempotency_key), timeout, machine=json)
    print_answer(None, f"resumed the schedule {visible(name)} of {namespace}", machine=json)


@app.command("trigger")
@with_settings(ACTING)
def trigger_schedule(
    namespace: NamespaceName,
    name: Name,
    *,
    idempotency_key: IdempotencyKey = None,
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Send now, or once the run before has ended, beside all other times."""
    sent = _Call(namespace, name, "trigger", None, idempotency_key)
    nominal = datetime.fromisoformat(_ask(settings, sent, timeout, machine=json))
    done = f"triggered the schedule {visible(name)} of {namespace}, as of {nominal.isoformat()}"
    print_answer(nominal if json else None, done, machine=json)


@app.command("backfill")
@with_settings(ACTING)
def backfill_schedule(
    namespace: NamespaceName,
    name: Name,
    since: Annotated[str, typer.Argument(metavar="SINCE", help="Time: ISO 8601.")],
    until: Annotated[str | None, typer.Argument(metavar="[UNTIL]", help="Before it; default: now.")] = None,
    *,
    idempotency_key: IdempotencyKey = None,
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Send the times of the past in a range, in their order; none that was sent before is sent again."""
    span = _read_span(since, until)
    sent = _Call(namespace, name, "backfill", span, idempotency_key)
    times = [datetime.fromisoformat(each) for each in _ask(settings, sent, timeout, machine=json)]
    done = f"the schedule {visible(name)} of {namespace} sends {len(times)} times, one after the other"
    print_answer(times if json else None, done, machine=json)


def _read_span(since: str, until: str | None) -> Span:
    """Return the range of a backfill; BadParameter if no time can be in it."""
    begin, end = read_moment(since, "SINCE"), read_moment(until, "UNTIL")
    if begin is None:
        raise AssertionError("a text is given")
    if end is not None and end <= begin:
        raise typer.BadParameter("it must be later than SINCE", param_hint="UNTIL")
    if begin >= datetime.now(UTC):
        raise typer.BadParameter(
            "it must be in the past: a backfill sends nothing else", param_hint="SINCE"
        )
    return Span(since=begin, until=end)


class _Call(NamedTuple):
    """A call on a schedule: the names of both, its arguments, and its idempotency key."""

    namespace: str
    schedule: str
    name: str
    args: Any
    idempotency_key: str | None


def _ask(settings: Settings, sent: _Call, timeout: str | None, *, machine: bool) -> Any:
    process_id = check_text("NAMESPACE/NAME", f"{sent.namespace}/{sent.schedule}")
    seconds, key = read_duration(timeout, "--timeout"), sent.idempotency_key
    try:
        return ask_patiently(
            settings,
            lambda client: client.submit_call(
                SCHEDULES, process_id, sent.name, sent.args, idempotency_key=key, timeout=seconds
            ),
            seconds,
            machine=machine,
            values=False,
        )
    except NamespaceNotFound:
        # No engine with a schedule was ever started here.
        raise ScheduleNotFound(SCHEDULES, process_id) from None


class _Found(NamedTuple):
    """A schedule, and the error after which a time of it is tried again."""

    process: Process[Any]
    retrying: str | None


async def _found(client: Client, namespace: str | None) -> tuple[list[_Found], KnownNamespace | None]:
    found: list[Process[Any]] = []
    cursor: str | None = None
    while True:
        metadata = None if namespace is None else {"namespace": namespace}
        try:
            page: Page = await client.search(
                namespace=SCHEDULES, metadata=metadata, limit=_PAGE, cursor=cursor
            )
        except NamespaceNotFound:
            return [], None
        found += page.items
        cursor = page.cursor
        if cursor is None:
            break
    # A group is of one schedule: its timers have its name.
    failed = await client.errors(namespace=SCHEDULES)
    errors = {each.process_id: each.message for each in failed if each.status == "retrying"}
    serving = next((each for each in await client.namespaces() if each.name == SCHEDULES), None)
    return [_Found(each, errors.get(each.process_id)) for each in found], serving


def _warn(serving: KnownNamespace | None) -> None:
    if serving is None:
        return
    if serving.paused:
        because = f": {visible(serving.pause_reason)}" if serving.pause_reason else ""
        note(f"nothing is sent: the namespace {SCHEDULES} is paused{because}")
    if not serving.workers:
        note("nothing is sent: no live worker serves a schedule")


def _plain(found: _Found) -> dict[str, Any]:
    process = found.process
    namespace, _, name = process.process_id.rpartition("/")
    about = {"namespace": namespace, "name": name, "status": process.status, "next": _next(process)}
    return about | {"detail": process.detail, "retrying": found.retrying} | (process.state or {})


def _next(process: Process[Any]) -> datetime | None:
    timer = process.timers.get(process.process_id)
    return None if timer is None else timer.due


def _listing(found: Sequence[_Found]) -> Listing:
    listing = Listing("SCHEDULE", "STATE", "NEXT", "EVERY", "SENDS", "LAST")
    for process, retrying in found:
        state = None if process.state is None else ScheduleState.model_validate(process.state)
        listing.add(
            process.process_id,
            _standing(process, state, retrying),
            clock(_next(process)),
            "" if state is None else rule_text(state.declaration.timer.every or {}),
            "" if state is None else state.declaration.sends,
            "" if state is None else _last(state),
        )
    return listing


def _last(state: ScheduleState) -> str:
    """Return when it sent last, and to whom."""
    sent, fanned_out = state.last, state.fanned_out
    if fanned_out is not None and (sent is None or sent.at < fanned_out.at):
        return f"{clock(fanned_out.at)} {number_of(fanned_out.sent, 'process')}"
    return "" if sent is None else f"{clock(sent.at)} {sent.process_id}"


def _standing(process: Process[Any], state: ScheduleState | None, retrying: str | None) -> Text:
    if process.status == "error":
        return Text(f"broken: {short(process.detail)}", style="red")
    if retrying is not None:
        return Text(f"retrying: {short(retrying)}", style="red")
    if state is None:
        return Text("beginning")
    if state.paused_at is not None:
        return Text(visible(f"paused: {state.reason}" if state.reason else "paused"), style="yellow")
    if state.fan_out is not None:
        return Text(f"sending, {state.fan_out.sent:,} so far")
    return Text(f"{len(state.waiting):,} wait") if state.waiting else Text("on", style="green")
