"""Faults that lose commits: the server's place is taken by a copy that does not have the last of them.

Rule: how much is lost is read, not guessed: all tasks of the copy before anybody works on it, and all of
the server that it replaced. A branch office is cut off around it. Its calls wait, its removals are under
way, and while it is away strangers draw the numbers that were lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.chaos.asking import Caller
from benchmarks.chaos.copies import Copy
from benchmarks.chaos.journal import Journal
from benchmarks.chaos.ledger import ACCOUNTS, BRANCH, CLIENT_OPTIONS, PAPERS, STEADY
from benchmarks.chaos.proxy import Proxy
from benchmarks.chaos.server import Row, Server, now, settled
from progressor import Client

PROMOTION = "asynchronous promotion"
RESTORE = "restore"
LOSSES = (PROMOTION, RESTORE)

_LOST_SECONDS = 1.0
_REPLY_SECONDS = 30.0
# A sequence hands out 32 numbers before it writes its place down again: so many are not drawn twice.
_LOST, _WAITING, _REMOVALS = 48, 24, 6
_STRANGERS, _STRANGE_CALLS = 32, 64
# So long what is to wait may take to be accepted: a slow machine has fewer of it.
_BOUND_SECONDS = 3.0
_LONGEST_SECONDS = 150.0
_OPTIONS: dict[str, Any] = {**CLIENT_OPTIONS, "patience": _REPLY_SECONDS}

_FACTS = """
SELECT
    n.name, p.process_id, coalesce(t.idempotency_key, t.task_id::text), t.status::text, t.response,
    t.task_id
FROM (
    SELECT process_no, idempotency_key, status, response, task_id FROM progressor.tasks
    UNION ALL
    SELECT process_no, idempotency_key, status, response, task_id FROM bank.swept_tasks
) AS t
JOIN progressor.processes AS p USING (process_no)
JOIN progressor.namespaces AS n USING (namespace_no)
"""
_NOT_YET_UNFINISHED = """
SELECT {count} - count(*) FROM progressor.tasks
WHERE starts_with(idempotency_key, '{prefix}') AND finished_time IS NULL
"""
_NOT_YET_LOCKED_OUT = "SELECT {count} - least({count}, count(*)) FROM pg_locks WHERE NOT granted"
_LAST_TASK = "SELECT max(task_id) FROM progressor.tasks"
_LOCK = """
SELECT FROM progressor.processes AS p
JOIN progressor.namespaces AS n USING (namespace_no)
WHERE n.name = %s AND p.process_id = ANY (%s)
FOR UPDATE OF p
"""


@dataclass
class Lost:
    """What was committed, and is gone; requests by (process, key), tasks by (process, number)."""

    times: int = 0
    keys: set[tuple[str, str]] = field(default_factory=set)
    answers: defaultdict[tuple[str, str], list[Any]] = field(default_factory=lambda: defaultdict(list))
    processes: set[str] = field(default_factory=set)
    tasks: set[tuple[str, int]] = field(default_factory=set)

    def take(self, has: Iterable[Row], had: Iterable[Row]) -> set[str]:
        """Learn what one copy has, and what the server had that it replaced; the steady processes of it."""
        self.times += 1
        found = {row[:5] for row in has}
        processes = {row[:2] for row in found}
        hit = set()
        for namespace, process, key, status, response, task_id in had:
            if (namespace, process, key, status, response) in found:
                continue
            self.keys.add((process, key))
            self.tasks.add((process, task_id))
            if status == "finished" and response is not None:
                self.answers[process, key].append(json.loads(response))
            if (namespace, process) not in processes:
                self.processes.add(process)
            if namespace == STEADY:
                hit.add(process)
        return hit


class Losses:
    """Promotes and restores; `lost` is what that cost so far."""

    def __init__(self, server: Server, proxy: Proxy, journal: Path) -> None:
        self._server = server
        self._proxy = proxy
        self.journal = journal
        self._count = 0
        self.lost = Lost()
        self.struck = now()

    async def promotion(self) -> str:
        """A standby that lagged for a second becomes the primary, and the old primary is gone for good."""
        return await self._strike(streams=True)

    async def restore(self) -> str:
        """A base backup of some seconds ago is put in the place of the server, under waiting clients."""
        return await self._strike(streams=False)

    async def _strike(self, *, streams: bool) -> str:
        self._count += 1
        before = len(self.lost.keys)
        with contextlib.suppress(TimeoutError):
            # Who has no answer by then is found by a check.
            async with asyncio.timeout(_LONGEST_SECONDS):
                await self._lose(streams=streams)
        return f"{len(self.lost.keys) - before} requests"

    async def _lose(self, *, streams: bool) -> None:
        async with AsyncExitStack() as opened:
            near = await opened.enter_async_context(Client(self._server.role_dsn, **_OPTIONS))
            far = await opened.enter_async_context(
                Client(self._server.proxied(self._proxy.port), **_OPTIONS)
            )
            copy = await asyncio.to_thread(Copy, self._server)
            opened.push_async_callback(asyncio.to_thread, copy.remove)
            if streams:
                await asyncio.to_thread(copy.follow)
                await asyncio.to_thread(copy.fall_behind)
            # From here on all is lost.
            branch = Branch(self._server, near, far, Journal(self.journal), f"loss-{self._count}")
            await asyncio.gather(branch.works(), asyncio.sleep(_LOST_SECONDS))
            async with branch.waiting(), self._proxy.partitioned():
                self.struck = now()
                has, had = await asyncio.to_thread(copy.take_over, _FACTS)
                hit = self.lost.take(has, had)
                await branch.strangers_come(max(row[-1] for row in had))
            await branch.replaces(hit)


class Branch:
    """The callers around one loss: `near` reach the server at once, `far` are cut off with the proxy."""

    def __init__(self, server: Server, near: Client, far: Client, journal: Journal, name: str) -> None:
        self._server = server
        self._near = Caller(near, journal, reply=_REPLY_SECONDS)
        self._far = Caller(far, journal, reply=_REPLY_SECONDS)
        self._name = name
        self._doomed = [self._paper("lost", number) for number in range(_LOST)][-_REMOVALS:]

    async def works(self) -> None:
        """Calls and starts that are answered, and lost: numbers of tasks and of processes are drawn."""
        await asyncio.gather(*self._calls(self._near, "lost", _LOST), *self._papers("lost", _LOST))

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Calls wait behind a slow one, and removals behind a lock; at the end all have been answered."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._near.ask(f"{self._name}:ponder", "call", ACCOUNTS, BRANCH, "ponder"))
            await settled(self._server, self._unfinished("ponder", 1), bound=_BOUND_SECONDS)
            locked = await asyncio.to_thread(self._lock)
            try:
                for paper in self._doomed:
                    group.create_task(self._far.ask(f"remove:{paper}", "remove", PAPERS, paper))
                for call in self._calls(self._far, "far", _WAITING):
                    group.create_task(call)
                await settled(self._server, self._unfinished("far:", _WAITING), bound=_BOUND_SECONDS)
                await settled(
                    self._server, _NOT_YET_LOCKED_OUT.format(count=_REMOVALS), bound=_BOUND_SECONDS
                )
                yield
            finally:
                # The end of the server was the end of the lock.
                locked.close()

    def _unfinished(self, kind: str, count: int) -> str:
        return _NOT_YET_UNFINISHED.format(count=count, prefix=f"{self._name}:{kind}")

    async def strangers_come(self, last: int) -> None:
        """Calls and starts that draw the lost numbers once more, up to the last task."""
        crowd, reached = 0, 0
        while reached <= last:
            crowd += 1
            kind = f"strange-{crowd}"
            await asyncio.gather(
                *self._calls(self._near, kind, _STRANGE_CALLS), *self._papers(kind, _STRANGERS)
            )
            ((reached,),) = await asyncio.to_thread(self._server.query, _LAST_TASK)

    async def replaces(self, steady: Iterable[str]) -> None:
        """Others in the place of steady processes whose steps were lost under their worker."""
        for number, name in enumerate(steady):
            await self._near.ask(f"remove:{name}", "remove", STEADY, name)
            other = f"{self._name}:steady:{number}"
            await self._near.ask(f"start:{other}", "start", STEADY, other)

    def _lock(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self._server.dsn, application_name="chaos")
        connection.execute(_LOCK.encode(), (PAPERS, self._doomed))
        return connection

    def _paper(self, kind: str, number: int) -> str:
        return f"{self._name}:{kind}:{number}"

    def _papers(self, kind: str, count: int) -> list[Coroutine[Any, Any, Any]]:
        names = [self._paper(kind, number) for number in range(count)]
        return [self._near.ask(f"start:{name}", "start", PAPERS, name) for name in names]

    def _calls(self, caller: Caller, kind: str, count: int) -> list[Coroutine[Any, Any, Any]]:
        keys = [f"{self._name}:{kind}:{number}" for number in range(count)]
        return [caller.ask(key, "call", ACCOUNTS, BRANCH, "note") for key in keys]
