"""A server whose disk is full: it answers, takes heartbeats, and saves nothing."""

import asyncio

import pytest

from progressor.client import client as client_module
from tests.acceptance.conftest import MakeClient
from tests.acceptance.support import NS, Act, Scripted, until
from tests.support import Tables

_FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION full_disk()
"""


async def test_it_is_no_health(serve: MakeClient, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads go through all the while; once something is saved, all is well at once."""
    monkeypatch.setattr(client_module, "_UNSAVED", 0.5)
    client = await serve(Scripted().namespace)
    await client.start(NS, "p", Act())
    assert (await client.health()).ok
    tables.connection.execute(_FULL)
    asked = asyncio.create_task(client.call(NS, "p", "act", Act(add=1)))

    health = await until(client.health, lambda found: not found.ok)
    assert health.fault == "database"
    assert "saved nothing" in str(health.detail)
    assert "No space left" in str(health.detail)
    assert (await client.get(NS, "p")).last_event_id == 0
    tables.execute("DROP TRIGGER full_disk ON tasks")
    assert await asked == 1
    assert (await client.health()).ok
