"""The command that reads stored states as the types of an app, before it is deployed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from progressor.cli.apps import OneNamespace, chosen, load, name_of
from progressor.cli.failures import examining
from progressor.cli.options import ASKING, OF_APP, AsJson, with_settings
from progressor.cli.output import print_json, stderr, stdout
from progressor.cli.question import ask
from progressor.client.client import Client
from progressor.client.state_samples import FaultGroup, StateSample, sample_states
from progressor.deployment.settings import Settings
from progressor.texts import number_of, visible

_UNREADABLE = 1
_INDENT = "  "


@with_settings({**OF_APP, **ASKING})
def check_states(
    *,
    namespace: OneNamespace = None,
    sample: Annotated[int, typer.Option(min=1, help="The most states to read of each namespace.")] = 1000,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Read stored states as the types of APP, before you deploy it. Nothing is changed.

    A sample is spread over the time in which processes were created, and has the oldest. Codecs of APP
    decode it. Values are never shown, nor the texts of your own validators.

    Exit status 0 if all can be read, 1 if one cannot, 75 without a database, 2 if none could be looked at.
    """
    namespaces = chosen(load(name_of(settings)).namespaces, namespace)

    async def look(client: Client) -> list[StateSample]:
        found = []
        with stderr().status("") as shown:
            for each in namespaces:

                def progress(states: int, name: str = each.name) -> None:
                    shown.update(f"{name}: {number_of(states, 'state')} read")

                found.append(await sample_states(client, each, size=sample, progress=progress))
        return found

    with examining(machine=json):
        samples = ask(settings, look)
    readable = not any(each.unreadable for each in samples)
    if json:
        document = {"readable": readable, "namespaces": [asdict(each) for each in samples]}
        print_json(document)
    else:
        for each in samples:
            stdout().print(_view(each), soft_wrap=True)
    if not readable:
        raise typer.Exit(_UNREADABLE)


def _view(sample: StateSample) -> Text:
    lines = [Text.assemble(_verdict(sample), f"  {sample.namespace}: {_found(sample)}")]
    for group in sample.faults:
        lines += [Text(visible(f"{_INDENT * 2}{each}")) for each in _fault(group)]
    return Text("\n").join(lines)


def _verdict(sample: StateSample) -> tuple[str, str]:
    if sample.skipped:
        return "skipped", "dim"
    return ("UNREADABLE", "bold red") if sample.unreadable else ("ok", "green")


def _found(sample: StateSample) -> str:
    if sample.skipped:
        return "a raw handler, so its states have no type"
    extent = "all" if sample.is_whole else "a sample of"
    if sample.unreadable:
        return f"{sample.unreadable:,} of {extent} {sample.states:,} states"
    return f"{extent} {sample.states:,} states can be read"


def _fault(group: FaultGroup) -> list[str]:
    more = group.states - len(group.processes)
    named = ", ".join(group.processes) + (f" and {more:,} more" if more else "")
    return [f"{group.field}: {group.rule}", f"{_INDENT}in {group.states:,}: {named}"]
