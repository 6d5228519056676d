"""A supervisor with children that are small scripts: when it goes on, and when it gives up."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from progressor.deployment import supervisor as supervisor_module
from progressor.deployment.supervisor import CannotStart, Supervisor
from progressor.loggers import message_of
from tests.support import eventually

# `number` is the child's, `begun(n)` how often one with this number has begun, this one included.
_CHILD = """
import os, socket, sys
number, descriptor = map(int, os.environ["_PROGRESSOR_CHILD"].split(":"))
link = socket.socket(fileno=descriptor)
def begun(number):
    return sum(int(line) == number for line in open("begun"))
def serve():
    link.sendall(b'[0, "serves"]\\n')
    for line in link.makefile():
        if "stop" in line: break
with open("begun", "a") as file:
    print(number, file=file)
"""

Children = Callable[[str], None]


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Children:
    """Says what each child does; they begin at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor_module.Pauses, "next", lambda _: 0.0)

    def do(script: str) -> None:
        monkeypatch.setattr(sys, "orig_argv", ["python", "-c", _CHILD + script])

    return do


@pytest.fixture
def told() -> Iterator[list[int]]:
    """The signals with which it tells the command to stop."""
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    yield signals
    signal.signal(signal.SIGTERM, before)


def _begun() -> list[int]:
    return [int(line) for line in Path("begun").read_text().split()]


@pytest.mark.parametrize(
    ("script", "status"),
    [("sys.exit(2)", 2), ("sys.exit(75)", 75), ("sys.exit(0)", 0), ("os.kill(os.getpid(), 9)", 137)],
)
async def test_the_first_child_starts_alone_and_once(children: Children, script: str, status: int) -> None:
    """What keeps it from serving keeps all from it; its status is that of the command."""
    children(script)
    with pytest.raises(CannotStart) as failure:
        async with Supervisor(4):
            raise AssertionError("none serves")
    assert failure.value.status == status
    assert _begun() == [1]


async def test_a_child_that_fails_again_and_again_ends_the_command(
    children: Children, told: list[int]
) -> None:
    """But not for what is over when it is tried again; the others are stopped, not killed."""
    children("if number == 1: serve()\nelse: sys.exit((75, 77)[begun(2) % 2] if begun(2) < 9 else 3)")
    with pytest.raises(CannotStart) as failure:
        async with Supervisor(2):
            await eventually(lambda: told == [signal.SIGTERM], "it gives up")
    assert failure.value.status == 3
    assert (_begun().count(1), _begun().count(2)) == (1, 8 + 5)


async def test_a_child_that_served_is_started_again_however_often_it_ends(children: Children) -> None:
    """It got its work done until then."""
    children("if number == 1 or begun(2) > 20: serve()\nlink.sendall(b'[0, \"serves\"]\\n')\nsys.exit(1)")
    async with Supervisor(2) as supervisor:
        await eventually(lambda: _begun().count(2) == 21, "it is started again")
        assert not (await supervisor.health()).ok
    assert _begun().count(1) == 1


async def test_a_stop_while_a_child_is_awaited(children: Children) -> None:
    """No child is begun after it, and none is left."""
    children("import time\nif number == 1: serve()\nelse: link.makefile().readline()")
    async with Supervisor(3) as supervisor:
        await eventually(lambda: len(_begun()) == 3, "all have begun")
        pids = [each.process.pid for each in supervisor._children]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert len(_begun()) == 3


# Serves as the n-th that begins, says so in a file, and after "spent" goes on until it is told to stop.
_RELIEVED = """
mine = begun(1)
def note(what):
    with open("notes", "a") as file: print(what, mine, file=file)
def say(news):
    link.sendall(b'[0, "%s"]\\n' % news)
def serve_once():
    note("serves"); say(b"serves"); say(b"spent")
    for line in link.makefile():
        if "stop" in line: break
    note("leaves")
"""


def _notes() -> list[str]:
    return Path("notes").read_text().splitlines()


async def test_who_has_done_its_share_is_relieved(children: Children) -> None:
    """It serves until another one does in its place, and is told to stop then; not a moment without."""
    children(_RELIEVED + "if mine < 4: serve_once()\nelse: note('serves'); serve()")
    async with Supervisor(1) as supervisor:
        await eventually(lambda: len(_begun()) == 4 and len(supervisor._children) == 1, "the last is alone")
    order = _notes()
    assert all(order.index(f"serves {n + 1}") < order.index(f"leaves {n}") for n in (1, 2, 3)), order


async def test_who_is_to_be_relieved_goes_on_while_nobody_can(children: Children) -> None:
    """Those that end before they serve are tried again, as always."""
    children(
        _RELIEVED + "if mine == 1: serve_once()\nelif mine < 4: sys.exit(3)\nelse: note('serves'); serve()"
    )
    async with Supervisor(1) as supervisor:
        await eventually(lambda: len(_begun()) == 4 and len(supervisor._children) == 1, "the last is alone")
    assert _notes() == ["serves 1", "serves 4", "leaves 1"]


async def test_who_dies_before_it_is_relieved_has_one_successor(
    children: Children, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that has begun already."""
    children(_RELIEVED + "say(b'serves')\nif mine == 1: say(b'spent'); sys.exit(3)\nelse: serve()")
    async with Supervisor(1) as supervisor:
        await eventually(lambda: len(_begun()) == 2 and len(supervisor._children) == 1, "one is left")
    assert _begun() == [1, 1]
    assert "child ended while it was relieved" in map(message_of, caplog.records)


async def test_who_ends_instead_of_an_answer_is_not_silent(children: Children, tmp_path: Path) -> None:
    """Its link tells so, before its exit status does; a silent one would have all restarted."""
    children(
        """
import time
link.sendall(b'[0, "serves"]\\n')
link.makefile().readline()
link.shutdown(socket.SHUT_RDWR)
while not os.path.exists("gate"):
    time.sleep(0.01)
"""
    )
    async with Supervisor(1) as supervisor:
        life = await supervisor.life()
        begun = _begun()
        (tmp_path / "gate").touch()
    assert (life, begun) == ((True, None), [1])


_SILENT = """
import time
link.sendall(b'[0, "serves"]\\n')
while not os.path.exists("gate"):
    time.sleep(0.01)
"""


async def test_who_is_told_to_stop_need_not_answer(
    children: Children, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An interpreter that ends does not, and takes its time beside much else."""
    monkeypatch.setattr(supervisor_module, "_HEALTH_PATIENCE", 0.1)
    children(_SILENT)
    async with Supervisor(1) as supervisor:
        before = await supervisor.life()
        asked = asyncio.create_task(supervisor.life())
        await asyncio.sleep(0)
        supervisor._children[0].stop()
        meanwhile, after = await asked, await supervisor.life()
        (tmp_path / "gate").touch()
    assert before == (False, "child 1: no answer")
    assert meanwhile == after == (True, None)


async def test_who_does_not_leave_is_killed(children: Children, caplog: pytest.LogCaptureFixture) -> None:
    """A child that hangs for good holds up no stop."""
    children(_SILENT)
    async with Supervisor(1, patience=0.1):
        pass
    assert "child does not leave, killing it" in map(message_of, caplog.records)


async def test_who_hangs_without_a_link_is_killed_and_replaced(children: Children) -> None:
    """Nobody could tell it anything any more."""
    children("if begun(1) > 1: serve()" + _SILENT.replace("while", "link.close()\nwhile"))
    async with Supervisor(1, patience=0.1) as supervisor:
        await eventually(lambda: len(_begun()) == 2 and len(supervisor._children) == 1, "it is replaced")


async def test_what_a_child_told_last_is_kept(children: Children) -> None:
    """The one that replaces it counts on from there."""
    children(
        """
import json
count = 7 if begun(1) == 1 else 3
figures = [["orders", "", "counter", "", [["orders_total", {}, count]]]]
link.sendall(b'[0, "serves"]\\n')
for line in link.makefile():
    asked, what = json.loads(line)
    if what == "stop" or begun(1) == 1 and asked > 1:
        break
    link.sendall(json.dumps([asked, figures]).encode() + b"\\n")
"""
    )
    async with Supervisor(1) as supervisor:
        assert await _orders(supervisor) == 7
        assert await _orders(supervisor) == 7, "it ends instead of an answer"
        await eventually(lambda: len(_begun()) == 2, "it is replaced")
        assert await _orders(supervisor) == 10


async def _orders(supervisor: Supervisor) -> float:
    (orders,) = (each for each in await supervisor._figures() if each.name == "orders")
    (sample,) = orders.samples
    return sample.value


async def test_a_metric_that_fails_costs_its_answer_alone(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector of the user's may do so; what else the child is asked and told it hears."""
    monkeypatch.setattr(supervisor_module, "_METRICS_PATIENCE", 0.1)
    children(
        """
import asyncio
from progressor import metrics
from progressor.deployment.link import Link
def fail():
    raise ValueError("no")
async def ask():
    raise AssertionError
async def main():
    link.watch(ask)
    link.leave()
    await asyncio.Event().wait()
metrics.families = fail
link.detach()
link = Link.inherited()
asyncio.run(main())
"""
    )
    async with Supervisor(1) as supervisor:
        for _ in range(2):
            await supervisor._figures()
        assert (await supervisor.health()).detail == "child 1: stopping"
    assert _begun() == [1]
