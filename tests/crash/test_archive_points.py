"""A sweeper that archives dies at every named point: each row is in the database, the archive, or both.

Each test kills a real process with os._exit, looks at once what there is, lets the time go by after which
another sweeper may go on, and then reads histories as users read them.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from progressor import Client, Engine, Retention
from progressor.archive.archive import Archive
from progressor.archive.records import EventRecord, TaskRecord
from progressor.cli.main import app
from progressor.deployment.standalone import Standalone, retention_sweeper_apart
from tests.crash import points
from tests.crash.ledger import CLIENT_OPTIONS, NAMESPACE, OPTIONS, account
from tests.crash.test_crash_points import die
from tests.support import Tables, check_invariants
from tests.transfers import made

# Two parts of two processes each.
NAMES = ("p1", "p2", "p3", "p4")
EVENTS = (1, 2, 3)
Row = TaskRecord | EventRecord
Rows = dict[tuple[str, str, int], Row]

# Each point is an OS process that dies, and another one that goes on.
pytestmark = pytest.mark.share(3)


@pytest.fixture
async def whole(dsn: str) -> Rows:
    """All rows of processes whose old ones are to be archived; no worker is there."""
    async with Engine(dsn, [account()], **OPTIONS):
        pass
    due = datetime.now(UTC) + timedelta(days=30)
    async with Client(dsn, **CLIENT_OPTIONS) as client:
        await client.import_processes([made(name, namespace=NAMESPACE, due=due) for name in NAMES])
        await client.set_retention(NAMESPACE, Retention(tasks=timedelta(hours=1), events=1, archive=True))
    return await stored(dsn)


def by_number(records: list[Row]) -> Rows:
    """The rows as an export has them, which need not say when their process was made."""
    return {
        (each.kind, each.process_id, each.task_id if isinstance(each, TaskRecord) else each.event_id): (
            each.model_copy(update={"born": None})
        )
        for each in records
    }


async def stored(dsn: str) -> Rows:
    """The rows in the database."""
    async with Client(dsn, **CLIENT_OPTIONS) as client:
        processes = (await client.export_processes(NAMESPACE)).processes
    return by_number([row for each in processes for row in (*each.tasks, *each.events)])


def archived(place: str) -> Rows:
    """The rows in the archive, which is as its manifests say."""
    archive = Archive(place)
    parts = list(archive.parts(NAMESPACE))
    verified = CliRunner().invoke(app, ["archive", "verify", NAMESPACE, "--archive", place])
    # Where there is no part yet, that is no success.
    assert (verified.exit_code, ", 0 damaged" in verified.output) == (0 if parts else 1, True)
    found = [record for part in parts for record in archive.records(*part)]
    return by_number([each for each in found if isinstance(each, TaskRecord | EventRecord)])


async def histories(dsn: str, place: str) -> dict[str, list[Any]]:
    """The histories of all processes, as `progressor history` prints them."""
    settings = {"PROGRESSOR_DATABASE_URL": dsn, "PROGRESSOR_ARCHIVE": place}
    found = {}
    for name in NAMES:
        command = shlex.split(f"history {NAMESPACE} {name} --json")
        ran = await asyncio.to_thread(CliRunner().invoke, app, command, env=settings)
        assert ran.exit_code == 0, ran.output
        found[name] = [json.loads(line)["payload"] for line in ran.stdout.splitlines()]
    return found


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        *((point, nth) for point in points.ARCHIVER_FILES for nth in (1, 2)),
        *((point, nth) for point in points.ARCHIVER_DELETES for nth in (2, 3)),
        # The claims of both parts, and every transaction until the first part is deleted.
        *((point, nth) for point in points.ARCHIVER_CLAIMS for nth in (2, 4)),
        *((point, nth) for point in points.ARCHIVER_COMMITS for nth in (2, 3, 4)),
    ],
)
async def test_a_sweeper_dies_that_archives(
    dsn: str, tables: Tables, tmp_path: Path, whole: Rows, point: str, nth: int
) -> None:
    """Nothing is in neither at any moment; another sweeper ends the walk, and readers see all once."""
    place = str(tmp_path / "archive")
    await die("archiver", point, dsn, nth=nth, archive=place)
    # In this order: a row may come into the archive in between, and none comes back from it.
    left, kept = await stored(dsn), archived(place)
    assert {**left, **kept} == {**kept, **left} == whole
    await check_readers(dsn, place)
    # The dead one had claimed the walk for some minutes: they go by.
    tables.execute("UPDATE retention SET next_at = next_at - interval '5 minutes'")
    async with Standalone(dsn, retention_sweeper_apart, archive=place, **OPTIONS) as service:
        async with asyncio.timeout(30):
            while (await service.client.retention(NAMESPACE)).ended_at is None:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.02)
    left, kept = await stored(dsn), archived(place)
    assert (kept, left) == (
        {key: row for key, row in whole.items() if is_old(row)},
        {key: row for key, row in whole.items() if not is_old(row)},
    )
    await check_readers(dsn, place)


def is_old(row: Row) -> bool:
    """Whether a walk archives and deletes it: what has ended, and each event but the last."""
    return not row.waits if isinstance(row, TaskRecord) else row.event_id < EVENTS[-1]


async def check_readers(dsn: str, place: str) -> None:
    """Every history is there, each event once, in its order; and the tables hold together."""
    assert await histories(dsn, place) == {name: [{"n": n} for n in EVENTS] for name in NAMES}
    check_invariants(dsn)
