"""What keeps a deployment for years, behind a pooler: moved processes, retention, archive, keys."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from progressor import Engine, Retention, acting
from progressor.archive.pages import ImportOutcome
from progressor.web.app import make_console
from tests.acceptance.conftest import MODES
from tests.acceptance.support import until
from tests.engine.meters import meters
from tests.open_access import OpenAccess
from tests.pgbouncer.conftest import PgBouncer
from tests.support import NS, check_invariants
from tests.transfers import made, outline
from tests.web.crawling import crawl
from tests.web.reading import Browser

OPTIONS: dict[str, Any] = {**MODES["scanning"], "zombie_interval": timedelta(seconds=0.1)}


@pytest.fixture
def pooled(dsn: str, pooler: PgBouncer) -> Iterator[str]:
    """A database through a pooler in transaction mode."""
    yield pooler.dsn(dsn)
    check_invariants(dsn)


async def test_processes_move(pooled: str) -> None:
    """A snapshot begins where sessions keep no state, too."""
    processes = [made(f"p{n}", namespace=NS, due=datetime(2040, 1, 1, tzinfo=UTC)) for n in range(3)]
    async with Engine(pooled, [meters()], **OPTIONS) as engine:
        with acting("an operator", reason="moved"):
            outcomes = await engine.client.import_processes(processes)
        assert outcomes == [ImportOutcome.IMPORTED] * 3
        page = await engine.client.export_processes(NS)
        assert [outline(each) for each in page.processes] == [outline(each) for each in processes]
        assert [each.verb for each in (await engine.client.audit(NS)).entries] == ["import"] * 3


@pytest.mark.parametrize("archived", [False, True], ids=["deleted", "archived"])
async def test_a_retention(pooled: str, tmp_path: Path, archived: bool) -> None:
    """A walk deletes what is old; with an archive it is read from there."""
    kept = Retention(events=3, archive=archived)
    async with Engine(pooled, [meters(retention=kept)], archive=str(tmp_path), **OPTIONS) as engine:
        await engine.client.start(NS, "p1")
        for units in range(5):
            await engine.client.call(NS, "p1", "read", units)
        await engine.client.begin_retention(NS)

        async def is_swept() -> bool:
            return (await engine.client.get(NS, "p1", range=None)).first_event_id == 4

        await until(is_swept, bool)
        found = [each.event_id for each in (await engine.client.get(NS, "p1")).history]
        assert found == ([1, 2, 3, 4, 5, 6] if archived else [4, 5, 6])


async def test_a_console(pooled: str) -> None:
    """Its pages are read and its forms are sent through the pooler; a scanner's samples stand in them."""
    async with Engine(pooled, [meters()], **OPTIONS | {"scanner": True}) as engine:
        await engine.client.start(NS, "p1")

        async def is_noted() -> bool:
            return bool(await engine.client.reader.samples([NS], within=timedelta(hours=1)))

        await until(is_noted, bool)
        async with Browser(make_console(engine.client, access=OpenAccess())) as browser:
            found = await crawl(browser)
            process = f"processes/{NS}/p1"
            assert {"", "processes", "broken", f"namespaces/{NS}", "audit", "feed", process} <= {
                url.removeprefix(browser.root) for url in found
            }
            form = found[browser.root + process].form("/call", name="read")
            page = await browser.send(form, "call", args="7")
            assert (page.status, page.note is not None) == (200, True), page.said
        assert (await engine.client.get(NS, "p1")).last_event_id == 2
