"""The move to another server by logical replication: the commands of its page, in their order."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from progressor import Client, Engine
from progressor.errors import SchemaMismatch
from progressor.storage import longest_outage, migrations
from progressor.storage.doctor import examine
from tests.acceptance.support import NS, Act, Scripted, until
from tests.clusters import Address, Cluster, clusters
from tests.docs.pages import steps

COPY, STATES, LAG, END = [
    each for each in steps("docs/how-to/upgrade.md", "sh") if "$NEW" in each or "$OLD" in each
]
_TABLES = """
SELECT count(*) FROM pg_class WHERE relnamespace = 'progressor'::regnamespace AND relkind = 'r'
"""
_END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'progressor%'
AND backend_type = 'client backend'
"""
_BEHIND = r"sequence \w+ is at \d+, but \d+ is used.*--sequences"
PROCESSES = [f"p{number}" for number in range(20)]


class Shell:
    """Runs commands of the page with the programs of the servers."""

    def __init__(self, old: Cluster, new: Cluster) -> None:
        path = os.pathsep.join((str(Path(sys.executable).parent), str(new.programs), os.environ["PATH"]))
        self._env = {**os.environ, "PATH": path, "OLD": old.dsn, "NEW": new.dsn}

    async def __call__(self, commands: str) -> str:
        return await asyncio.to_thread(self._run, commands)

    def _run(self, commands: str) -> str:
        bash = ["bash", "-euo", "pipefail", "-c", commands]
        done = subprocess.run(bash, env=self._env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A server that can publish, with the tables, and one that is empty."""
    with clusters(2) as (old, new):
        for each in (old, new):
            each.initialise()
            each.start(wal_level="logical")
        if not (new.programs / "pg_dump").exists():
            pytest.skip("the PostgreSQL under test has no pg_dump")
        migrations.upgrade(old.dsn)
        yield old, new


async def _until(shell: Shell, commands: str, *lines: str) -> None:
    """Repeat the commands until they print these lines of a table and no other."""
    async with asyncio.timeout(60):
        while [line.strip() for line in (await shell(commands)).splitlines()[2:-2]] != [*lines]:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.1)


async def test_a_move(pair: tuple[Cluster, Cluster]) -> None:
    """Nothing is lost, no number is given twice; nothing starts or goes on before sequences are lifted."""
    old, new = pair
    shell = Shell(old, new)

    async def add_to_all(client: Client) -> list[int]:
        return await asyncio.gather(*(client.call(NS, each, "act", Act(add=1)) for each in PROCESSES))

    bank = Scripted()
    async with Address(old.port) as address, Engine(address.dsn, [bank.namespace]) as engine:
        later = Act(after=3600.0, then=Act(add=100))
        await asyncio.gather(*(engine.client.start(NS, each, later) for each in PROCESSES))
        await add_to_all(engine.client)
        await shell(COPY)
        await add_to_all(engine.client)
        ((tables,),) = old.execute(_TABLES)
        await _until(shell, STATES, f"r     |     {tables}")
        await add_to_all(engine.client)
        under_way = asyncio.create_task(
            engine.client.call(NS, PROCESSES[0], "act", Act(add=100, gate="step"))
        )
        await bank.gates["step"].entered()
        await _until(shell, LAG, "0")
        # What should have been stopped is led to the copy.
        address.leads_to = new.port
        old.execute(_END_SESSIONS)
        with pytest.raises(SchemaMismatch, match=_BEHIND):
            await Engine(new.dsn, [Scripted().namespace]).__aenter__()
        bank.gates["step"].open()
        waiting = asyncio.create_task(engine.client.call(NS, PROCESSES[1], "act", Act(add=1)))
        outage = await until(lambda: asyncio.sleep(0, longest_outage()), lambda found: found is not None)
        assert outage is not None
        assert re.search(_BEHIND, str(outage.cause))
        lifted = await shell(END)
        assert "processes_process_no_seq 1 → 20" in lifted
        assert lifted.endswith("all 33 invariants hold\n")
        assert await waiting == 4
        assert await under_way == 103
        assert await add_to_all(engine.client) == [104, 5, *[4] * (len(PROCESSES) - 2)]
    async with Engine(new.dsn, [Scripted().namespace]) as engine:
        assert await engine.client.start(NS, "new", Act(add=1)) == 1
        for each in PROCESSES:
            await engine.client.fire_timer(NS, each)
        for each in PROCESSES:
            await until(partial(engine.client.get, NS, each), lambda found: found.state.balance >= 104)
    assert examine(new.dsn).is_clean
