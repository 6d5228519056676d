"""The system: how the database is, what the doctor finds, and the settings without secrets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from progressor import Client
from progressor.errors import InvalidRequest
from progressor.monitoring import DatabaseFigures, SlotFigures, StandbyFigures
from progressor.storage import schema_check
from progressor.storage.doctor.advice import ADVICE, advice_on
from progressor.storage.doctor.checks import CHECKS
from progressor.web.app import make_console
from progressor.web.pages import system
from tests.open_access import OpenAccess
from tests.web.conftest import World
from tests.web.orders import SEEN
from tests.web.test_rights import everything

QUICK = [each.name for each in CHECKS if each.is_quick]


async def test_the_database_is_shown(world: World) -> None:
    """Its schema, server, connections, tables, and that nothing is replicated."""
    page = await (await world.caller("admin")).get("system")
    for said in (
        f"revision {schema_check.head()}, that of this release",
        "PostgreSQL ",
        "processes",
        "No standby receives",
    ):
        assert said in page.said
    figures = await world.client.system.database()
    assert 1 <= figures.connections <= figures.most_connections
    assert figures.revision == schema_check.head()
    assert figures.oldest_snapshot is not None
    sizes = [each.size for each in figures.tables]
    assert sizes == sorted(sizes, reverse=True)
    assert {"processes", "tasks", "events"} <= {each.name for each in figures.tables}


async def test_an_old_transaction_has_an_age(world: World) -> None:
    """One that is open is seen, by a role that may."""
    with psycopg.connect(world.dsn) as connection:
        connection.execute("SELECT FROM progressor.processes")
        connection.execute("SELECT pg_current_xact_id()")
        figures = await world.client.system.database()
    assert figures.oldest_snapshot_ms is not None
    assert figures.oldest_snapshot_ms > 0


async def test_replication_is_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """How far a standby is behind; and a slot that nobody reads, which fills the disk."""
    figures = replace(
        await world.client.system.database(),
        standbys=(
            StandbyFigures("near", "streaming", "sync", timedelta(seconds=3), 3 << 20),
            StandbyFigures("hidden from the role", None, None, None, None),
        ),
        slots=(SlotFigures("forgotten", False, "extended", 7 << 20), SlotFigures("new", True, None, None)),
    )

    async def replicated(_: object) -> DatabaseFigures:
        return figures

    monkeypatch.setattr(type(world.client.system), "database", replicated)
    page = await (await world.browser()).get("system")
    for said in ("near", "3 s", "3.0", "unknown", "forgotten", "by nobody", "7.0"):
        assert said in page.said


async def test_a_database_that_says_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page still comes, in its time."""

    async def silent(_: object) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(type(world.client.system), "database", silent)
    monkeypatch.setattr(system, "_SECONDS", 0.01)
    page = await (await world.browser()).get("system")
    assert page.status == 200
    assert "does not say how it is" in page.said


async def test_a_revision_of_another_release_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do."""
    monkeypatch.setattr(type(world.client.system), "needed_revision", "0001")
    assert "this release has 0001: upgrade it too" in (await (await world.browser()).get("system")).said
    monkeypatch.setattr(type(world.client.system), "needed_revision", "9999")
    assert "run progressor migrate" in (await (await world.browser()).get("system")).said


async def test_settings_hide_secrets(world: World, tmp_path: Path) -> None:
    """Of an address with a password it is said that it is set."""
    own = make_conninfo(world.dsn, password="hush")
    options = {"listen_database_url": own, "archive": str(tmp_path / "hush")}
    client = Client(world.dsn, **options)
    page = await (await world.browser(make_console(client, access=OpenAccess()))).get("system")
    await client.close()
    assert "hush" not in page.html
    assert "hush" not in repr(client.system.settings)
    settings = client.system.settings
    assert (settings["listen_database_url"], settings["archive"], settings["actor"]) == ("set", "set", None)
    assert "lease_age" in page.said


async def test_the_doctor_finds_nothing(world: World) -> None:
    """It says what it has checked, and changes nothing."""
    browser = await world.caller("admin")
    before = everything(world.dsn)
    page = await browser.get("system")
    (url,) = (each for each in page.links if each.endswith("system/doctor"))
    page = await browser.get(url)
    assert f"All {len(QUICK)} invariants hold" in page.said
    for name in QUICK:
        assert name in page.said
    assert "What to do" not in page.said
    assert everything(world.dsn) == before


async def test_the_doctor_says_what_to_do(world: World) -> None:
    """With the place of each finding, as a link to its process."""
    with psycopg.connect(world.dsn) as connection:
        changed = connection.execute(
            "UPDATE progressor.schedule SET claimable = FALSE WHERE claimable RETURNING task_id"
        ).fetchall()
        (made,) = connection.execute(
            "SELECT pg_get_indexdef('progressor.schedule_one_timer'::regclass)"
        ).fetchone() or ("",)
        connection.execute("DROP INDEX progressor.schedule_one_timer")
    browser = await world.caller("admin", "processes:read")
    page = await browser.get("system/doctor")
    assert "2 invariants" in page.said
    assert "it is the next, but cannot be claimed" in page.said
    assert any(f"processes/{SEEN}/" in url for url in page.links)
    assert "progressor migrate --sql" in page.said
    assert "by hand" in page.said
    with psycopg.connect(world.dsn) as connection:
        ids = [task_id for (task_id,) in changed]
        connection.execute(
            "UPDATE progressor.schedule SET claimable = TRUE WHERE task_id = ANY (%s)", [ids]
        )
        connection.execute(made)


async def test_an_examination_has_an_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is named; here a table is locked, as VACUUM FULL would."""
    monkeypatch.setattr(system, "_LONGEST_EXAMINATION", timedelta(milliseconds=100))
    browser = await world.browser()
    with psycopg.connect(world.dsn) as connection:
        connection.execute("LOCK TABLE progressor.running IN ACCESS EXCLUSIVE MODE")
        page = await browser.get("system/doctor")
    assert page.status == 200
    assert "was too short" in page.said
    assert "running_has_its_task" in page.said
    assert "All " not in page.said


async def test_there_is_one_examination_at_a_time(world: World) -> None:
    """Another one is refused, and told to ask again."""
    with psycopg.connect(world.dsn) as connection:
        connection.execute("LOCK TABLE progressor.running IN ACCESS EXCLUSIVE MODE")
        first = asyncio.create_task(world.client.system.examine(within=timedelta(minutes=1)))
        # The first one begins at the next turn of the loop.
        await asyncio.sleep(0)
        with pytest.raises(InvalidRequest, match="another examination runs"):
            await world.client.system.examine(within=timedelta(minutes=1))
        page = await (await world.browser()).get("system/doctor")
        assert page.status == 503
        assert page.answer.headers["Retry-After"]
    assert (await first).is_clean


async def test_those_who_see_all_namespaces_alone(world: World) -> None:
    """The tables hold those of all."""
    caller = await world.caller("all", namespaces=["a.*"])
    for path in ("system", "system/doctor"):
        assert (await caller.get(path)).status == 403


def test_advice_is_on_invariants_that_there_are() -> None:
    """All others have the same: it is a defect."""
    assert set(ADVICE) <= {each.name for each in CHECKS}
    assert "report it" in advice_on("running_once")
