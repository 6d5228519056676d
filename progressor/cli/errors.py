"""The command that shows failures in groups, each with its last one and the commands for it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from progressor.cli.options import ASKING, AsJson, with_settings
from progressor.cli.output import clock, note, print_json, stdout
from progressor.cli.question import ask
from progressor.cli.values import read_since
from progressor.client.failure_groups import FailureGroup, bulk_filter_of, pattern_of
from progressor.deployment.settings import Settings
from progressor.http.wire.models import plain
from progressor.texts import visible

_BROKEN = "broken"


@with_settings(ASKING)
def errors(
    *,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only failures since this time (ISO 8601), or within this duration (PT1H, 3600)."
        ),
    ] = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Group failures by namespace, handler and message: broken processes, and timers that are retried.

    Numbers, ids and quoted values are left out of the message of a group; that of its last failure follows
    in full, and the command that shows it. `progressor errors --since PT1H`
    """
    begin = read_since(since)
    found = ask(settings, lambda client: client.errors(namespace=namespace, since=begin))
    if json:
        print_json([{**plain(each), "show": show(each), "repair": repair(each)} for each in found])
    elif found:
        stdout().print(_view(found), soft_wrap=True)
    else:
        note("nothing fails")


def show(group: FailureGroup) -> str:
    """Return the command that shows the example of a group."""
    return f"progressor trace {group.namespace} {shlex.quote(group.process_id)} --last 5"


def repair(group: FailureGroup) -> str | None:
    """Return the command that shows what a bulk would repair of a group; None for one that is retried."""
    if group.status != _BROKEN:
        return None
    handler, pattern = bulk_filter_of(group.handler), pattern_of(group.message)
    wanted = [] if handler is None else ["--handler", handler]
    # A detail may be empty, which no pattern is.
    wanted += ["--detail-like", pattern] if pattern else []
    return shlex.join(["progressor", "repair", "--namespace", group.namespace, *wanted, "--dry-run"])


def _view(found: Sequence[FailureGroup]) -> RenderableType:
    lines: list[RenderableType] = []
    for each in found:
        is_broken = each.status == _BROKEN
        more = "+" if each.at_least else ""
        style = "bold red" if is_broken else "bold yellow"
        lines.append(
            Text.assemble(
                (f"{each.count:,}{more} {each.status}", style),
                (f"  {visible(each.namespace)}  {visible(each.handler)}", "bold"),
                (f"  first {clock(each.first_seen)}, last {clock(each.last_seen)}", "dim"),
            )
        )
        lines.append(Padding(Text(visible(each.message)), (0, 0, 0, 4)))
        if " ".join(each.error.split()) not in ("", each.message):
            lines.append(Padding(Text(f"last: {visible(each.error)}"), (0, 0, 0, 4)))
        lines.append(Padding(Text(visible(show(each)), style="cyan"), (0, 0, 0, 4)))
        if command := repair(each):
            lines.append(Padding(Text(visible(command), style="cyan"), (0, 0, 0, 4)))
    if any(each.status == _BROKEN for each in found):
        lines.append(Text("repair one: progressor repair|simple-repair NAMESPACE PROCESS_ID", style="dim"))
        lines.append(Text("repair a group: the command below it, then without --dry-run", style="dim"))
    return Group(*lines)
