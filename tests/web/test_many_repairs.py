"""A bulk of ten thousand repairs, begun, watched and stopped through the forms of two consoles in turn."""

from __future__ import annotations

from contextlib import suppress

import psycopg
import pytest

from progressor import Client, HandlerFailed
from progressor.bulks import Bulk, BulkStatus
from progressor.web.pages import broken
from tests.acceptance.support import until
from tests.support import Tables
from tests.web.conftest import World, engine_on
from tests.web.orders import SEEN
from tests.web.reading import Browser

MANY, RATE, BURST = 10_000, 200, 200
STORM = f"bulk/new?namespace={SEEN}&detail_like=%25storm%25"

_BROKEN = (
    """
    CREATE TEMP TABLE broken AS
    SELECT 1000000 + n AS process_no, 1000000 + 2 * n AS task_id, 'storm-' || n AS process_id, now() AS at
    FROM generate_series(1, %s) AS n
    """,
    """
    INSERT INTO processes (
        process_no, namespace_no, process_id, created_at, status, previous_status, status_changed_at,
        detail, corrupted_by
    )
    OVERRIDING SYSTEM VALUE
    SELECT
        b.process_no, n.namespace_no, b.process_id, b.at, 'error', 'running', b.at,
        'storm of ' || b.process_id,
        b.task_id + 1
    FROM broken AS b, namespaces AS n WHERE n.name = %s
    """,
    """
    INSERT INTO tasks (
        process_no, task_id, task_type, status, scheduled_time, running_time, finished_time, name, args,
        idempotency_key, request_hash, response, error
    )
    SELECT
        process_no, task_id, 'init'::task_type, 'finished'::task_status, at, at, at, NULL, NULL::bytea,
        'first', ''::bytea, '1'::bytea, NULL
    FROM broken
    UNION ALL
    SELECT process_no, task_id + 1, 'call', 'error', at, at, at, 'break', NULL, 'second', '', NULL, 'storm'
    FROM broken
    """,
    "SELECT setval('tasks_task_id_seq', 2000000), setval('processes_process_no_seq', 2000000)",
)


def brew(tables: Tables) -> None:
    """Break ten thousand processes that were never there."""
    make, processes, tasks, numbers = _BROKEN
    tables.execute(make, MANY)
    tables.execute(processes, SEEN)
    tables.execute(tasks)
    tables.execute(numbers)


async def begun(world: World) -> tuple[Bulk, str]:
    """A bulk that a form began, and the address of its page."""
    browser = await world.browser()
    page = await browser.get(STORM)
    assert "2,000+ processes" in page.said
    page = await browser.send(page.form("/bulk"), reason="the storm is over", rate=str(RATE))
    assert page.note == "The bulk has begun."
    return await world.client.bulk(int(page.url.rpartition("/")[2])), page.url


async def test_ten_thousand_repairs_are_stopped(served: World) -> None:
    """A bulk keeps its rate, goes on while consoles come and go, and begins nothing once it was stopped.

    What breaks after it was made is left alone, and the audit has one entry of it.
    """
    world = served
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        tables = Tables(connection)
        brew(tables)
        bulk, url = await begun(world)
        with suppress(HandlerFailed):
            await world.client.call(SEEN, "order-1", "break", "of the storm")
        await until(lambda: world.client.bulk(bulk.bulk_id), lambda found: found.begun >= RATE)
        # Another console, of another client.
        async with Client(world.dsn) as client:
            other = await World(world.dsn, client, world._stack).browser()
            await stopped(other, url)
            (at_stop,) = tables.execute("SELECT begun FROM bulks WHERE bulk_id = %s", bulk.bulk_id)
            bulk = await until(
                lambda: client.bulk(bulk.bulk_id), lambda found: found.status is BulkStatus.STOPPED
            )
        assert RATE <= bulk.begun == at_stop["begun"] == bulk.repaired < MANY
        assert bulk.ended_at is not None
        page = await (await world.browser()).get(url)
        assert "What it had not begun stays broken." in page.said
        (again,) = (each for each in page.links if "bulk/new" in each)
        assert "storm" in again
        assert "<progress" not in page.html
        assert bulk.begun <= (bulk.ended_at - bulk.created_at).total_seconds() * RATE + BURST
        (found,) = tables.execute(
            "SELECT count(*) FILTER (WHERE status = 'running') AS mended, count(*) AS broken "
            "FROM processes WHERE process_id LIKE 'storm-%%'"
        )
        assert found == {"mended": bulk.begun, "broken": MANY}
    late = await world.client.get(SEEN, "order-1")
    assert (late.status, late.detail is not None and "of the storm" in late.detail) == ("error", True)
    entries = (await world.client.audit(SEEN)).entries
    assert [
        (each.verb, each.way, each.reason) for each in entries if each.subject == f"bulk {bulk.bulk_id}"
    ] == [
        ("stop_bulk", "console", None),
        ("repair_all", "console", "the storm is over"),
    ]


async def stopped(browser: Browser, url: str) -> None:
    """Press the button of a bulk's page, whose progress is shown."""
    page = await browser.get(url)
    assert "running" in page.said
    page = await browser.send(page.form("/stop"))
    assert page.note == "The bulk begins no more repairs."


async def test_a_preview_that_looked_at_too_few(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older processes may match too, so the bulk can be begun, and looks at all."""
    monkeypatch.setattr(broken, "_PREVIEW_LOOKS", 1)
    browser = await world.browser()
    with suppress(HandlerFailed):
        async with engine_on(world.dsn) as engine:
            await engine.client.call(SEEN, "order-1", "break", "of order 1")
    page = await browser.get(f"bulk/new?namespace={SEEN}&detail_like=%25of order 1%25")
    assert "Of the newest 1 that are broken none matches." in page.said
    page = await browser.send(page.form("/bulk"))
    assert page.note == "The bulk has begun."
