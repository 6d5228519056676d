"""The commands that change a process: start, call, notify, repair, simple-repair, redo, put, remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from progressor.cli import bulk
from progressor.cli.dry_run import dry_run as run_dry
from progressor.cli.options import (
    ACTING,
    ASKING,
    Args,
    AsJson,
    Context,
    Expires,
    IdempotencyKey,
    Metadata,
    NamespaceName,
    Priority,
    ProcessId,
    Timeout,
    with_settings,
)
from progressor.cli.output import print_answer
from progressor.cli.patience import ask_patiently
from progressor.cli.question import ask
from progressor.cli.spelling import spelled
from progressor.cli.statuses import status_option
from progressor.cli.values import read_delay, read_duration, read_json, read_moment, read_object
from progressor.deployment.settings import Settings
from progressor.errors import InvalidRequest
from progressor.timers import SetTimer

_MANY = "Many processes"
_OF_MANY = ("--detail-like", "--handler", "--simple", "--redo", "--rate", "--watch")
CallName = Annotated[str, typer.Argument(metavar="NAME", help="The call's name.")]


@with_settings(ASKING)
def start(
    namespace: NamespaceName,
    process_id: ProcessId,
    args: Args = None,
    *,
    metadata: Metadata = None,
    idempotency_key: IdempotencyKey = None,
    context: Context = None,
    timeout: Timeout = None,
    priority: Priority = 0,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Create a process, run its init, and print its answer."""
    given = read_json(args, "ARGS")
    of_process = read_object(metadata, "--metadata")
    common = _common(idempotency_key, context, timeout)
    answer = ask_patiently(
        settings,
        lambda client: client.submit_start(
            namespace, process_id, given, metadata=of_process, priority=priority, **common
        ),
        common["timeout"],
        machine=json,
    )
    print_answer(answer, f"started {namespace}/{process_id}", machine=json)


@with_settings(ASKING)
def call(
    namespace: NamespaceName,
    process_id: ProcessId,
    name: CallName,
    args: Args = None,
    *,
    idempotency_key: IdempotencyKey = None,
    context: Context = None,
    timeout: Timeout = None,
    expires: Expires = None,
    priority: Priority = 0,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Run a call on a process, and print its answer."""
    given = read_json(args, "ARGS")
    common = _common(idempotency_key, context, timeout) | _urgency(expires, priority)
    answer = ask_patiently(
        settings,
        lambda client: client.submit_call(namespace, process_id, name, given, **common),
        common["timeout"],
        machine=json,
    )
    print_answer(answer, f"called {name} of {namespace}/{process_id}", machine=json)


@with_settings(ASKING)
def notify(
    namespace: NamespaceName,
    process_id: ProcessId,
    name: CallName,
    args: Args = None,
    *,
    idempotency_key: IdempotencyKey = None,
    context: Context = None,
    timeout: Timeout = None,
    expires: Expires = None,
    priority: Priority = 0,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Put a call into the mailbox of a process, and wait for no answer."""
    given = read_json(args, "ARGS")
    common = _common(idempotency_key, context, timeout) | _urgency(expires, priority)
    ask(settings, lambda client: client.notify(namespace, process_id, name, given, **common), values=True)
    print_answer(None, f"accepted {name} for {namespace}/{process_id}", machine=json)


@with_settings(ACTING)
def repair(
    namespace: Annotated[str | None, typer.Argument(metavar="NAMESPACE")] = None,
    process_id: Annotated[str | None, typer.Argument(metavar="PROCESS_ID")] = None,
    args: Args = None,
    *,
    idempotency_key: IdempotencyKey = None,
    context: Context = None,
    timeout: Timeout = None,
    of_namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            rich_help_panel=_MANY,
            help="Repair all processes of this namespace that match.",
        ),
    ] = None,
    status: Annotated[
        str,
        status_option("--status", allowed=("error",), rich_help_panel=_MANY, help="Only broken processes."),
    ] = "error",
    detail_like: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_MANY,
            help="Only processes whose detail matches: a pattern of SQL's LIKE, with % and _.",
        ),
    ] = None,
    handler: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_MANY, help="Only processes that this broke: init, timeout, or a call's name."
        ),
    ] = None,
    simple: Annotated[
        bool, typer.Option("--simple", rich_help_panel=_MANY, help="Without a handler, as simple-repair.")
    ] = False,
    redo: Annotated[
        bool,
        typer.Option(
            "--redo",
            rich_help_panel=_MANY,
            help="Once repaired, run again what broke each process, and what that cancelled.",
        ),
    ] = False,
    rate: Annotated[
        str | None,
        typer.Option(rich_help_panel=_MANY, help="The highest rate: 50/s, 90/m.", show_default="50/s"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Of one: show what its repair would do. Of many: how many match, and why they broke.",
        ),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", "--wait", rich_help_panel=_MANY, help="Show its progress until it has ended."
        ),
    ] = False,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Run the repair handler of a broken process, and print its answer; or of all that match.

    With --namespace: `progressor repair --namespace NAMESPACE [ARGS]` makes a bulk, which runs in the
    background. It repairs what is broken now and matches, and nothing that breaks later. First try

        progressor repair --namespace billing.subscription --detail-like 'GatewayDown%' --dry-run
    """
    del status  # only broken processes can be repaired; the option is taken for those who state it
    wanted = {"detail_like": detail_like, "handler": handler}
    if of_namespace is not None:
        if not (process_id is context is timeout is None):
            raise typer.BadParameter(
                "with --namespace it takes ARGS, no NAMESPACE and PROCESS_ID, --context or --timeout",
                param_hint="--namespace",
            )
        # The first argument is then ARGS, no namespace.
        given = read_json(namespace, "ARGS")
        if dry_run:
            bulk.preview(settings, of_namespace, given, wanted, simple=simple, machine=json)
            return
        pace = {} if rate is None else {"rate": bulk.read_rate(rate)}
        how = {"simple": simple, "redo": redo, "idempotency_key": idempotency_key, **pace}
        bulk.begin(settings, of_namespace, given, wanted, how, watch=watch, machine=json)
        return
    given_of_many = (detail_like, handler, simple, redo, rate is not None, watch)
    _refuse_of_many(given_of_many, is_one=process_id is not None)
    if namespace is None or process_id is None:
        raise typer.BadParameter(
            "give NAMESPACE and PROCESS_ID for one process, or --namespace for all that match"
        )
    given = read_json(args, "ARGS")
    common = _common(idempotency_key, context, timeout)
    if dry_run:
        run_dry(settings, namespace, process_id, given, common, machine=json)
        return
    answer = ask_patiently(
        settings,
        lambda client: client.submit_repair(namespace, process_id, given, **common),
        common["timeout"],
        machine=json,
    )
    print_answer(answer, f"repaired {namespace}/{process_id}", machine=json)


@with_settings(ACTING)
def simple_repair(
    namespace: NamespaceName,
    process_id: ProcessId,
    *,
    idempotency_key: IdempotencyKey = None,
    context: Context = None,
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Put a broken process back to running without a handler; a timer that broke it is due again at once.

    If its init broke it, it goes back to init, which then runs anew.
    """
    common = _common(idempotency_key, context, timeout)
    ask(settings, lambda client: client.simple_repair(namespace, process_id, **common))
    print_answer(None, f"repaired {namespace}/{process_id}", machine=json)


@with_settings(ASKING)
def redo(
    namespace: NamespaceName,
    process_id: ProcessId,
    task_id: Annotated[int, typer.Argument(metavar="TASK", min=1, help="The task's id in the trace.")],
    *,
    timeout: Timeout = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Run a call or notice that ended again, with its arguments, and print the answer.

    Each is run again once: a repeated redo prints the answer of the first.
    """
    seconds = read_duration(timeout, "--timeout")
    answer = ask(
        settings, lambda client: client.redo(namespace, process_id, task_id, timeout=seconds), values=True
    )
    print_answer(answer, f"redid task {task_id} of {namespace}/{process_id}", machine=json)


@with_settings(ACTING)
def put(
    namespace: NamespaceName,
    process_id: ProcessId,
    state: Annotated[
        str | None, typer.Argument(metavar="[STATE]", help="JSON, or @file, or - for stdin.")
    ] = None,
    *,
    events: Annotated[
        str | None,
        typer.Option(help='A JSON list of its events, oldest first: [{"name": "opened", "plan": "pro"}].'),
    ] = None,
    metadata: Metadata = None,
    status: Annotated[
        Literal["running", "error"], status_option("--status", allowed=("running", "error"))
    ] = "running",
    timer_at: Annotated[str | None, typer.Option(help="Due time of its timer, in ISO 8601.")] = None,
    timer_after: Annotated[str | None, typer.Option(help="Time until its timer is due.")] = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Import a process as it is: no handler runs."""
    given = read_json(state, "STATE")
    history = [] if events is None else read_json(events, "--events")
    if not isinstance(history, list):
        raise typer.BadParameter("it must be a JSON list", param_hint="--events")
    of_process = read_object(metadata, "--metadata")
    timer = _timer(timer_at, timer_after)
    ask(
        settings,
        lambda client: client.put(
            namespace,
            process_id,
            state=given,
            events=history,
            action=timer,
            metadata=of_process,
            status=status,
        ),
        values=True,
    )
    print_answer(None, f"imported {namespace}/{process_id}", machine=json)


def _refuse_of_many(given: Sequence[object], *, is_one: bool) -> None:
    """Raise BadParameter for options that belong to --namespace, with the command for one process."""
    options = [option for option, value in zip(_OF_MANY, given, strict=True) if value]
    if not options:
        return
    text = f"{', '.join(options)} must stand beside --namespace: it is for all processes that match"
    if is_one and "--simple" in options:
        text += "; of one process it is `progressor simple-repair NAMESPACE PROCESS_ID`"
    elif is_one and "--redo" in options:
        text += "; of one process `progressor redo NAMESPACE PROCESS_ID TASK` comes after its repair"
    raise typer.BadParameter(text, param_hint=options[0])


def _common(idempotency_key: str | None, context: str | None, timeout: str | None) -> dict[str, Any]:
    return {
        "idempotency_key": idempotency_key,
        "context": read_json(context, "--context"),
        "timeout": read_duration(timeout, "--timeout"),
    }


def _urgency(expires: str | None, priority: int) -> dict[str, Any]:
    return {"expires": read_duration(expires, "--expires"), "priority": priority}


def _timer(at: str | None, after: str | None) -> SetTimer | None:
    if at is None and after is None:
        return None
    if at is not None and after is not None:
        raise typer.BadParameter("give one of --timer-at and --timer-after", param_hint="--timer-at")
    moment, delay = read_moment(at, "--timer-at"), read_delay(after, "--timer-after")
    try:
        return SetTimer(at=moment, after=delay)
    except InvalidRequest as error:
        text = spelled(str(error), {"at": "--timer-at", "after": "--timer-after"}, field=error.field)
        raise typer.BadParameter(text, param_hint="--timer-at") from None
