"""PostgreSQL restarts under load, politely and by a crash; nobody has to help the engine.

Rule: the server is one of this file's own, since others may use the one that all tests share.
"""

import asyncio
import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest

import progressor
from progressor import (
    Client,
    Cron,
    Engine,
    HistoryRange,
    Namespace,
    Process,
    ProcessStatus,
    StorageUnavailable,
    outages,
)
from progressor.embedded import lifetime
from progressor.loggers import message_of
from progressor.schedules import SCHEDULES
from progressor.storage import migrations
from progressor.storage.postgres.dsn import parsed
from tests import postgres
from tests.acceptance.conftest import Options, of_a_client
from tests.acceptance.support import DEADLINE, Act, Scripted, until
from tests.support import check_invariants

SECOND = timedelta(seconds=1)


class Server:
    """A PostgreSQL to stop and to start."""

    def __init__(self, home: Path) -> None:
        self._embedded = postgres.embedded(home)
        self.dsn = self._embedded.start()
        (self._folder,) = home.glob("pg*")
        migrations.upgrade(self.dsn)

    async def stop(self, how: signal.Signals) -> None:
        """SIGINT: fast, sessions are ended. SIGQUIT: immediate, as if it crashed."""
        pid = lifetime.server_pid(self._folder)
        assert pid is not None
        os.kill(pid, how)
        async with asyncio.timeout(DEADLINE):
            while lifetime.is_alive(self._folder):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)

    async def start(self) -> None:
        await asyncio.to_thread(self._embedded.start)

    def leave(self) -> None:
        self._embedded.stop()


@pytest.fixture(scope="module")
def private() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(
        prefix="prg-restart-", dir=postgres.PLACE, ignore_cleanup_errors=True
    ) as home:
        Path(home).chmod(0o755)  # as root, the server is another user
        server = Server(Path(home) / "postgres")
        yield server
        server.leave()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
async def test_a_restart_under_load(private: Server, mode: Options, how: signal.Signals) -> None:
    """Across restarts every accepted request is done once: answers, sums and histories are exact."""
    # A history to read in every step, and little patience: the engine must be patient on its own.
    scripted = Scripted(
        f"bank.{uuid4().hex}",
        concurrency=8,
        history=HistoryRange(limit=1, direction="backward"),
    )
    namespace, answered = scripted.name, 0
    asker_mode = of_a_client(mode)
    async with (
        Engine(private.dsn, [scripted.namespace], patience=timedelta(milliseconds=200), **mode),
        Client(private.dsn, **asker_mode) as client,
    ):
        names = [f"p{number}" for number in range(4)]

        async def ask(name: str) -> list[int]:
            nonlocal answered
            answers = []
            for _ in range(25):
                act = Act(add=1, emit="called", after=0.001)
                answers.append(await client.call(namespace, name, "act", act))
                answered += 1
            return answers

        async def count() -> int:
            return answered

        async def restart() -> None:
            for least in (20, 90):
                await until(count, lambda count, least=least: count >= least)
                await private.stop(how)
                await private.start()

        await asyncio.gather(*(client.start(namespace, name, Act()) for name in names))
        restarting = asyncio.create_task(restart())
        answers = await asyncio.gather(*(ask(name) for name in names for _ in range(2)))
        await restarting

        async def fired(name: str) -> bool:
            timers = [t for t in await client.trace(namespace, name) if t.task_type == "timeout"]
            return all(timer.status in ("finished", "cancelled") for timer in timers)

        for place, name in enumerate(names):
            assert sorted(answers[2 * place] + answers[2 * place + 1]) == list(range(1, 51))
            await until(lambda name=name: fired(name), lambda done: done)
            process = await client.get(namespace, name)
            assert process.status is ProcessStatus.RUNNING
            assert process.state["balance"] == 50
            called = [event for event in process.history if event.name == "called"]
            assert [event.payload["balance"] for event in called] == list(range(1, 51))
            made = [t for t in await client.trace(namespace, name) if t.status == "finished" and t.events]
            assert len(process.history) == len(made)
        assert scripted.overlaps == []
        assert await client.call(namespace, "p0", "act", Act(add=1)) == 51
    check_invariants(private.dsn)


async def test_an_outage_is_told_and_survived(private: Server, mode: Options) -> None:
    """While PostgreSQL is away requests fail with StorageUnavailable; afterwards everything works."""
    scripted = Scripted("bank.outage")
    asker_mode = of_a_client(mode)
    process_id = f"p{len(mode)}"
    async with (
        Engine(private.dsn, [scripted.namespace], **mode) as engine,
        Client(private.dsn, patience=SECOND / 5, **asker_mode) as client,
    ):
        patiently = engine.client
        await patiently.start("bank.outage", process_id, Act(add=1))
        await private.stop(signal.SIGINT)
        for asking in (
            client.call("bank.outage", process_id, "act", Act()),
            client.get("bank.outage", process_id),
            client.search(),
        ):
            with pytest.raises(StorageUnavailable):
                await asking
        assert not (await client.health()).ok
        patient = asyncio.create_task(
            patiently.call("bank.outage", process_id, "act", Act(add=1), idempotency_key="k")
        )
        await private.start()
        assert await patient == 2
        assert (await patiently.get("bank.outage", process_id)).state.balance == 2
        await until(client.health, lambda health: health.ok)
        assert await patiently.call("bank.outage", process_id, "act", Act(add=1)) == 3


async def test_an_outage_is_a_few_lines_of_log(
    private: Server, mode: Options, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is away, where, and why, when it begins; for how long, when it is over; nothing for each try."""
    monkeypatch.setattr(outages, "_CALM", 2.0)
    caplog.set_level(logging.INFO, logger="progressor")
    scripted = Scripted("bank.log")
    options: dict[str, Any] = {"heartbeat_interval": SECOND / 10, **mode}
    async with Engine(private.dsn, [scripted.namespace], **options) as engine:
        await engine.client.start("bank.log", f"p{len(mode)}", Act(add=1))
        await private.stop(signal.SIGINT)
        asking = [
            asyncio.create_task(engine.client.call("bank.log", f"p{len(mode)}", "act", Act(add=1)))
            for _ in range(20)
        ]
        await until(lambda: said(caplog, "PostgreSQL not available"), bool)
        await private.start()
        await asyncio.gather(*asking)
        await until(lambda: said(caplog, "PostgreSQL available again"), bool)
        if not mode:
            await until(lambda: said(caplog, "listener made anew"), bool)
            assert len(await said(caplog, "listener lost")) == 1
    place = parsed(private.dsn)
    (begins,) = await said(caplog, "PostgreSQL not available")
    (over,) = await said(caplog, "PostgreSQL available again")
    for line in (begins, over):
        assert (line.host, line.database) == (place["host"], place["dbname"])
    assert begins.operation
    assert begins.cause
    assert over.seconds > 0
    (started,) = await said(caplog, "engine started")
    assert started.namespaces == ["bank.log"]
    assert started.host == place["host"]
    assert started.version == progressor.__version__
    assert started.server_version[:2].isdigit()
    lines = [message_of(record) for record in caplog.records if record.levelno >= logging.WARNING]
    # Whether a collector must begin anew depends on how long it took.
    perhaps = {"listener lost", "no zombies are collected for a lease"}
    assert [line for line in lines if line not in perhaps] == ["PostgreSQL not available"]
    assert len(lines) == len(set(lines))


async def said(caplog: pytest.LogCaptureFixture, message: str) -> list[Any]:
    return [record for record in caplog.records if message_of(record) == message]


def scheduled() -> Namespace[Any]:
    """Three schedules, so that an outage can come between two of them."""
    namespace: Namespace[Any] = Namespace(f"shop.{uuid4().hex}")

    @namespace.init
    async def begin(process: Process[Any]) -> None: ...

    for name in ("first", "second", "third"):
        namespace.schedule(name, Cron("0 0 1 1 *"), start="fixed")
    return namespace


class Stopping:
    """Stops the server before a client's second start; and starts it again, if it is to come back."""

    def __init__(self, server: Server, *, comes_back: bool) -> None:
        self._server, self._comes_back, self._starts = server, comes_back, 0
        self.restarting: asyncio.Task[None] | None = None

    def patched(self) -> Any:
        """The starts of all clients."""
        submit = Client.submit_start

        async def submit_start(client: Client, *args: Any, **more: Any) -> Any:
            self._starts += 1
            if self._starts == 2:
                await self._server.stop(signal.SIGQUIT)
                if self._comes_back:
                    self.restarting = asyncio.create_task(self._server.start())
            return await submit(client, *args, **more)

        return mock.patch.object(Client, "submit_start", submit_start)


async def all_declared(client: Client, namespace: Namespace[Any]) -> None:
    """Wait until each schedule has begun, and waits for its first time."""

    async def timers() -> dict[str, list[str]]:
        found = await client.search(namespace=SCHEDULES, metadata={"namespace": namespace.name})
        return {each.process_id: list(each.timers) for each in found.items}

    names = [f"{namespace.name}/{name}" for name in ("first", "second", "third")]
    await until(timers, lambda found: found == {name: [name] for name in names})


async def test_an_outage_while_schedules_are_declared(private: Server, mode: Options) -> None:
    """The engine waits for the server, and declares each of them once."""
    namespace, stopping = scheduled(), Stopping(private, comes_back=True)
    with stopping.patched():
        async with Engine(private.dsn, [namespace], **mode) as engine:
            assert stopping.restarting is not None
            await stopping.restarting
            await all_declared(engine.client, namespace)


async def test_an_outage_that_outlasts_the_patience(private: Server, mode: Options) -> None:
    """The engine does not start, and says so; the next one declares what is missing."""
    namespace, stopping = scheduled(), Stopping(private, comes_back=False)
    engine = Engine(private.dsn, [namespace], patience=timedelta(milliseconds=200), **mode)
    with stopping.patched(), pytest.raises(StorageUnavailable):
        await engine.__aenter__()
    await private.start()
    async with Engine(private.dsn, [namespace], **mode) as again:
        await all_declared(again.client, namespace)
