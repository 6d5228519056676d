"""The command that checks the promises of the engine about its tables."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from progressor.cli.failures import examining
from progressor.cli.options import ASKING, AsJson, with_settings
from progressor.cli.output import print_json, stdout
from progressor.cli.runner import warn_of_polls
from progressor.cli.values import read_duration
from progressor.deployment import logs
from progressor.deployment.database import existing_database
from progressor.deployment.settings import Settings
from progressor.errors import ProgressorError
from progressor.loggers import Logger
from progressor.storage import refuse_lent_sessions, schema_check
from progressor.storage.doctor import Finding, Invariant, Report, examine
from progressor.texts import visible

log = Logger("progressor.cli")

_FINDINGS = 1
# Rounds; a zombie that a collector has not collected in so many is a finding.
_ROUNDS = 3


@with_settings(ASKING)
def doctor(
    *,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Skip checks that read all tasks, events or processes.")
    ] = False,
    most: Annotated[int, typer.Option(min=1, help="The most findings to show of each check.")] = 10,
    slack: Annotated[
        str | None,
        typer.Option(
            help="Time that the zombie collector may be late.",
            show_default=f"{_ROUNDS} times PROGRESSOR_ZOMBIE_INTERVAL",
        ),
    ] = None,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Check every invariant of the tables, in one snapshot; nothing is changed.

    Exit status 0 if all hold, 1 if one does not, 75 without a database, 2 if it cannot be examined.
    """
    logs.set_up(level=settings.log_level, form=settings.log_format)
    late = read_duration(slack, "--slack")
    with examining(machine=json), existing_database(settings) as found:
        is_standby = schema_check.check_revision(found.dsn, schema=settings.database_schema)
        if not is_standby:
            # Nobody waits for a hint from a standby.
            _look_at_sessions(found.dsn, settings)
        outcome = examine(
            found.dsn,
            namespace=namespace,
            quick=quick,
            most=most,
            lease_age=settings.lease_age,
            grace=settings.zombie_grace,
            slack=settings.zombie_interval * _ROUNDS if late is None else late,
            schema=settings.database_schema,
        )
    if json:
        invariants = [asdict(each) for each in outcome.invariants]
        print_json({"clean": outcome.is_clean, "invariants": invariants})
    else:
        stdout().print(_view(outcome), soft_wrap=True)
    if not outcome.is_clean:
        raise typer.Exit(_FINDINGS)


def _look_at_sessions(dsn: str, settings: Settings) -> None:
    """Log a warning if no hint of an answer can come, which is no fault of the tables."""
    warn_of_polls(settings)
    if not settings.signals:
        return
    url = settings.listen_database_url
    try:
        asyncio.run(refuse_lent_sessions(dsn, None if url is None else url.get_secret_value()))
    except ProgressorError as error:
        log.warning("signals cannot work", extra={"reason": str(error)})


def _view(outcome: Report) -> Text:
    width = max(len(invariant.name) for invariant in outcome.invariants)
    lines = [line for invariant in outcome.invariants for line in _lines(invariant, width)]
    broken = sum(not invariant.holds for invariant in outcome.invariants)
    if broken:
        lines.append(
            Text(f"{broken} of {len(outcome.invariants)} invariants do not hold", style="bold red")
        )
    else:
        lines.append(Text(f"all {len(outcome.invariants)} invariants hold", style="bold green"))
    return Text("\n").join(lines)


def _lines(invariant: Invariant, width: int) -> list[Text]:
    verdict = ("ok    ", "green") if invariant.holds else ("BROKEN", "bold red")
    lines = [Text.assemble(verdict, f"  {invariant.name:{width}}  ", (invariant.rule, "dim"))]
    lines += [Text(f"        {_finding(finding)}") for finding in invariant.findings]
    if invariant.more:
        lines.append(Text("        … and more"))
    return lines


def _finding(finding: Finding) -> str:
    # A damaged process may have no namespace, a damaged task no process.
    process = None if finding.process_id is None else f"{finding.namespace or '?'}/{finding.process_id}"
    task = None if finding.task_id is None else f"task {finding.task_id}"
    where = " ".join(filter(None, (process, task)))
    return visible(f"{where}: {finding.found}" if where else finding.found)
