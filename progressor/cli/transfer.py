"""The commands export and import: processes whole, as lines of JSON, out of a database and into one.

Rule: an export that was stopped can be resumed at the last place that its file has, and is not taken for a
whole one, for it has no tail. An import can be repeated: it leaves what is there alone.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import typer

from progressor.archive.pages import ExportPage, ImportOutcome
from progressor.archive.records import (
    HeadRecord,
    PlaceRecord,
    TailRecord,
    WholeProcess,
    head_of,
    read_line,
    write_line,
)
from progressor.archive.wholes import read_wholes
from progressor.cli.many import MaybeProcess, OfStatus, WithMetadata, progress
from progressor.cli.options import ACTING, ASKING, AsJson, NamespaceName, with_settings
from progressor.cli.output import note, print_json
from progressor.cli.question import ask
from progressor.cli.values import read_filter
from progressor.client.client import Client
from progressor.deployment.settings import Settings
from progressor.errors import InvalidRequest
from progressor.release import VERSION
from progressor.texts import number_of

# An import commits so many processes at once, or these many tasks and events.
_PROCESSES, _ROWS = 200, 5_000
_HEAD, _PLACE, _TAIL = (b'{"kind":"%s"' % kind for kind in (b"head", b"place", b"tail"))
_GZIP = b"\x1f\x8b"


@with_settings(ASKING)
def export(
    namespace: NamespaceName,
    process_id: MaybeProcess = None,
    *,
    metadata: WithMetadata = None,
    status: OfStatus = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write into this file, not to stdout.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in a file whose export was stopped.")
    ] = False,
    settings: Settings,
) -> None:
    """Write processes whole, a line of JSON for each of their rows: state, timers, tasks, events.

    `progressor export billing.subscription --metadata customer=17 > customer-17.ndjson`

    `progressor import` reads it, into this database or another one. Values are as they are stored: encoded,
    if the namespace has a codec.
    """
    if resume and output is None:
        raise typer.BadParameter("name the file: --output", param_hint="--resume")
    if process_id is not None and (metadata is not None or status is not None):
        raise typer.BadParameter("it is for many processes: leave out PROCESS_ID", param_hint="--metadata")
    wanted: dict[str, Any] = {
        "process_id": process_id,
        "metadata": read_filter(metadata, "--metadata"),
        "status": status,
    }

    async def write(client: Client) -> int:
        # What is refused leaves no file, which the corrected command would have to go on in.
        is_begun = resume and output is not None and output.exists()
        first = None if is_begun else await client.export_processes(namespace, **wanted)
        with _sink(output, resume, namespace, wanted) as (file, begin), progress("exported") as shown:
            many = begin.processes
            async for page in _pages(client, namespace, wanted, begin.cursor, first):
                _write_page(file, page)
                many += len(page.processes)
                shown(many)
            file.write(write_line(TailRecord(processes=many)))
        return many

    many = ask(settings, write)
    note(number_of(many, "process"))


async def _pages(
    client: Client, namespace: str, wanted: dict[str, Any], cursor: str | None, first: ExportPage | None
) -> AsyncIterator[ExportPage]:
    page = first
    while True:
        if page is None:
            page = await client.export_processes(namespace, cursor=cursor, **wanted)
        yield page
        cursor = page.cursor
        if cursor is None:
            return
        page = None


def _write_page(file: IO[bytes], page: ExportPage) -> None:
    for whole in page.processes:
        file.writelines(write_line(record) for record in whole.records())
    if page.cursor is not None:
        file.write(write_line(PlaceRecord(cursor=page.cursor)))
    file.flush()


class _Begin(NamedTuple):
    """The place where an export begins: behind a cursor, with so many processes in its file already."""

    cursor: str | None = None
    processes: int = 0


@contextmanager
def _sink(
    output: Path | None, resume: bool, namespace: str, wanted: dict[str, Any]
) -> Iterator[tuple[IO[bytes], _Begin]]:
    """Open what an export writes into, at the place where it goes on."""
    asked = {"namespace": namespace} | {name: each for name, each in wanted.items() if each is not None}
    if output is None:
        stdout = sys.stdout.buffer
        stdout.write(_head(asked))
        yield stdout, _Begin()
        return
    with _told(output), _sink_in(output, resume, asked) as sink:
        yield sink


def _head(asked: dict[str, Any]) -> bytes:
    return write_line(head_of(VERSION, datetime.now(UTC), asked=asked))


@contextmanager
def _told(output: Path) -> Iterator[None]:
    """Tell why a file cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise InvalidRequest(f"{output} cannot be written: {error.strerror}", field="--output") from None


@contextmanager
def _sink_in(output: Path, resume: bool, asked: dict[str, Any]) -> Iterator[tuple[IO[bytes], _Begin]]:
    begin, size = _place_in(output, asked) if resume and output.exists() else (_Begin(), 0)
    if not resume and output.exists() and output.stat().st_size:
        raise typer.BadParameter(f"{output} is there: --resume goes on in it", param_hint="--output")
    # What it has is for its owner alone.
    with os.fdopen(os.open(output, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        if file.seek(0, os.SEEK_END) > size:
            file.truncate(size)
        file.seek(size)
        if not size:
            file.write(_head(asked))
        yield file, begin


def _place_in(output: Path, asked: dict[str, Any]) -> tuple[_Begin, int]:
    """Return the last place in a file of the same export, and the size of the file up to it."""
    found, size, processes, at = _Begin(), 0, 0, 0
    with output.open("rb") as file:
        begin = file.read(len(_HEAD))
        if not _HEAD.startswith(begin):
            raise typer.BadParameter(f"{output} is not an export", param_hint="--resume")
        file.seek(0)
        for number, line in enumerate(file, start=1):
            at += len(line)
            processes += line.startswith(b'{"kind":"end"')
            if line.startswith(_PLACE) and line.endswith(b"\n"):
                record = read_line(line, number=number)
                if isinstance(record, PlaceRecord):
                    found, size = _Begin(record.cursor, processes), at
    if size:
        _check_same(output, asked)
    return found, size


def _check_same(output: Path, asked: dict[str, Any]) -> None:
    """Raise BadParameter if a file is an export of other processes."""
    with output.open("rb") as file:
        head = read_line(file.readline(), number=1)
    if isinstance(head, HeadRecord) and head.asked != asked:
        raise typer.BadParameter(
            f"{output} is an export of {head.asked}, not of {asked}", param_hint="--resume"
        )


@with_settings(ACTING)
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An export; compressed too; - for stdin.")],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only read the file and check it whole.")
    ] = False,
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Write exported processes into this database, with their histories, tasks, answers, keys and timers.

    `progressor import customer-17.ndjson`

    What is there already is left alone, so a command that was stopped can be repeated. What waits is run
    here, at its time: export from a namespace that is paused, or the other database runs it too. A worker
    must have served the namespaces of the file.
    """
    if dry_run:
        many = sum(1 for _ in _read(file))
        _say({"read": many}, f"read {number_of(many, 'process')}: whole", machine=json)
        return
    done = dict.fromkeys(ImportOutcome, 0)

    async def write(client: Client) -> None:
        with progress("imported") as shown:
            for batch in _batches(_read(file)):
                for outcome in await client.import_processes(batch):
                    done[outcome] += 1
                shown(done[ImportOutcome.IMPORTED])

    try:
        ask(settings, write)
    except BaseException:
        before = number_of(done[ImportOutcome.IMPORTED], "process")
        note(f"imported {before} before that; the command can be repeated")
        raise
    imported, taken = done[ImportOutcome.IMPORTED], done[ImportOutcome.TAKEN]
    beside = f"; {taken:,} were there already" if taken else ""
    _say(
        {"imported": imported, "taken": taken},
        f"imported {number_of(imported, 'process')}{beside}",
        machine=json,
    )


def _say(facts: dict[str, int], words: str, *, machine: bool) -> None:
    if machine:
        print_json(facts)
    else:
        note(words)


def _read(file: Path) -> Iterator[WholeProcess]:
    if str(file) == "-":
        yield from read_wholes(_to_its_end(sys.stdin.buffer))
        return
    try:
        with file.open("rb") as lines:
            is_packed = lines.peek(len(_GZIP)).startswith(_GZIP)
            with gzip.open(lines) if is_packed else lines as opened:
                yield from read_wholes(_to_its_end(opened))
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}", field="FILE") from None


def _to_its_end(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; raise InvalidRequest behind them if its export was stopped there.

    A file without a head is lines that somebody has put together: those of pages, or some of an export.
    """
    last, unfinished = b"", 0
    for number, line in enumerate(lines, start=1):
        last = line if line.strip() else last
        if line.startswith(_HEAD):
            unfinished += _is_of_export(line, number)
        unfinished -= line.startswith(_TAIL)
        yield line
    if not last:
        raise InvalidRequest("the file is empty: no export has begun in it", field="FILE")
    if unfinished > 0 or last.startswith(_PLACE):
        raise InvalidRequest(
            "the file ends where its export was stopped: finish it with `progressor export --resume`, then "
            "import it again",
            field="FILE",
        )


def _is_of_export(line: bytes, number: int) -> bool:
    """Return whether a head is that of an export, which ends with a tail; an archive has none."""
    head = read_line(line, number=number)
    return isinstance(head, HeadRecord) and head.asked is not None


def _batches(wholes: Iterator[WholeProcess]) -> Iterator[Sequence[WholeProcess]]:
    """Yield the processes in batches, of which none has a name twice."""
    batch: dict[tuple[str, str], WholeProcess] = {}
    rows = 0
    try:
        for whole in wholes:
            name = (whole.process.namespace, whole.process.process_id)
            if batch and (name in batch or len(batch) >= _PROCESSES or rows >= _ROWS):
                yield list(batch.values())
                batch, rows = {}, 0
            batch[name] = whole
            rows += len(whole.tasks) + len(whole.events)
    except InvalidRequest:
        # What stands before the bad line is imported.
        if batch:
            yield list(batch.values())
        raise
    if batch:
        yield list(batch.values())
