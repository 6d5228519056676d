"""The dry run of a repair: what it would do, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from progressor.cli.output import clock, print_json, stdout
from progressor.cli.question import ask
from progressor.cli.tables import Listing
from progressor.client.client import Client
from progressor.deployment.settings import Settings
from progressor.handlers.dry_run import DryRun
from progressor.handlers.process import Process
from progressor.http.wire.models import state_of
from progressor.texts import changed_lines, pretty, short

# Characters of the answer and of each payload, and of each difference.
_SHORT, _LONG = 200, 8192
_STYLES = {"+": "green", "-": "red", "@": "dim"}


def dry_run(
    settings: Settings, namespace: str, process_id: str, args: Any, common: dict[str, Any], *, machine: bool
) -> None:
    """Run the repair handler of a process dry, and print what it would do."""

    async def look(client: Client) -> tuple[DryRun, Process[Any] | None]:
        run = await client.dry_run_repair(namespace, process_id, args, **common)
        return run, None if machine else await client.get(namespace, process_id, range=None)

    run, process = ask(settings, look, values=True)
    if process is None:
        print_json(run.document)
    else:
        stdout().print(view(run, process), soft_wrap=True)


def view(run: DryRun, before: Process[Any]) -> RenderableType:
    """Return what the repair would change in a process as it is before."""
    lines: list[RenderableType] = [Text("a repair would do this; nothing is changed")]
    if run.answer is not None:
        lines.append(_titled("answer", Text(short(run.answer, _SHORT))))
    if run.removed:
        lines.append(Text("the process would be removed", style="bold"))
    else:
        lines.append(_titled("state", _difference(state_of(before), run.state)))
        if run.metadata != before.metadata:
            lines.append(_titled("metadata", _difference(dict(before.metadata), run.metadata)))
    if run.begins_anew:
        lines.append(Text("its init would run anew then, and may change what stands here", style="bold"))
    parts = {"events": _events(run), "timers after it": _timers(run), "messages": _messages(run)}
    for title, rows in parts.items():
        if rows is not None:
            lines += [Text(title, style="bold"), Padding(rows, (0, 0, 0, 2))]
        else:
            lines.append(_titled(title, Text("none")))
    return Group(*lines)


def _titled(title: str, text: Text) -> Text:
    return Text.assemble((title, "bold"), "\n" if "\n" in text.plain else "  ", text)


def _difference(before: Any, after: Any) -> Text:
    found = changed_lines(pretty(before), pretty(after))
    if not found:
        return Text("it stays as it is")
    shown = found if len(found) <= _LONG else f"{found[:_LONG]}…\n--json shows all of it"
    return Text("\n").join(Text(line, style=_STYLES.get(line[:1], "")) for line in shown.split("\n"))


def _events(run: DryRun) -> Listing | None:
    rows = ((each.name or "", short(each.payload, _SHORT)) for each in run.events)
    return _listing(("event", "payload"), rows)


def _timers(run: DryRun) -> Listing | None:
    rows = (
        (
            name or "(without a name)",
            clock(timer.at),
            "the process is removed" if timer.remove else "its handler runs",
        )
        for name, timer in run.timers.items()
    )
    return _listing(("timer", "due", "then"), rows)


def _messages(run: DryRun) -> Listing | None:
    rows = (
        (
            f"{each.namespace}/{each.process_id}",
            "start" if each.name is None else f"notify {each.name}",
            short(each.args, _SHORT),
        )
        for each in run.messages
    )
    return _listing(("to", "what", "arguments"), rows)


def _listing(titles: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Listing | None:
    """Return rows under these titles; None without any."""
    found = list(rows)
    listing = Listing(*titles)
    for each in found:
        listing.add(*each)
    return listing if found else None
