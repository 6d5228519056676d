"""The faults themselves: what is said to have been done was done, and is undone.

Rule: on a server of its own, because they change its settings and privileges.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from benchmarks.chaos.faults import Faults
from benchmarks.chaos.losses import Losses
from benchmarks.chaos.parts import Place
from benchmarks.chaos.proxy import Proxy
from benchmarks.chaos.server import Server
from tests import postgres

_MAY_WRITE = "SELECT has_table_privilege('chaos_app', 'progressor.tasks', 'INSERT')"


@pytest.fixture(scope="module")
def machine() -> Iterator[Server]:
    """The server that the faults strike."""
    with tempfile.TemporaryDirectory(
        prefix="prg-chaos-", dir=postgres.PLACE, ignore_cleanup_errors=True
    ) as home:
        Path(home).chmod(0o755)  # as root, the server is another user
        with pytest.MonkeyPatch.context() as environment:
            for name, value in postgres.settings().items():
                environment.setenv(name, value)
            server = Server(Path(home) / "postgres")
        yield server
        server.leave()


@pytest.fixture
def faults(machine: Server, tmp_path: Path) -> Faults:
    proxy = Proxy(machine.socket_path)
    losses = Losses(machine, proxy, tmp_path / "journal")
    return Faults(machine, proxy, [], losses, Place(tmp_path), seed=1, pause=0)


def may_write(machine: Server) -> bool:
    ((may,),) = machine.query(_MAY_WRITE)
    return bool(may)


async def test_a_state_that_lasts_is_not_begun_twice(machine: Server, faults: Faults) -> None:
    """The end of one would be the end of the other, and two grants at once fail."""
    await asyncio.gather(*(faults._inject("privileges taken") for _ in range(2)))
    assert ([fault.kind for fault in faults.done], faults.missed) == (["privileges taken"], 1)
    assert not may_write(machine)
    for lasting in faults._lasting:
        lasting.cancel()
    await asyncio.wait(faults._lasting)
    assert may_write(machine)


async def test_what_cannot_be_done_is_not_counted(machine: Server, faults: Faults) -> None:
    """A fault that found no way in is missed, not done."""
    with psycopg.connect(machine.dsn) as writer:
        writer.execute("LOCK TABLE progressor.workers IN ROW EXCLUSIVE MODE")
        await faults._inject("heartbeats locked out")
    assert (faults.done, faults.missed) == ([], 1)


async def test_a_fault_that_fails_later_is_heard_of(faults: Faults) -> None:
    """The run ends with its error."""

    async def fail() -> None:
        raise LookupError

    faults._last(fail())
    await asyncio.wait(faults._lasting)
    with pytest.raises(LookupError):
        await faults.run(0)
