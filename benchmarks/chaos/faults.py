"""The faults: which there are, how often, and how each is done.

Rule: seeded. The first round has one of each kind, then they are drawn by weight; what cannot be done at
a moment (its process is just being started, no commit came by, a lock is not to be had) is not counted.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from datetime import datetime

import psycopg

from benchmarks.chaos.ledger import LEASE_SECONDS, STEADY_LEASE_SECONDS
from benchmarks.chaos.losses import LOSSES, PROMOTION, RESTORE, Losses
from benchmarks.chaos.parts import Place
from benchmarks.chaos.proxy import AtCommit, Proxy, Trap
from benchmarks.chaos.server import Server, now
from benchmarks.chaos.stalls import Stalls
from benchmarks.chaos.supervisor import Member

_CHANGING = (
    "save_result",
    "save_result_timeless",
    "prepare_call",
    "prepare_init",
    "search_calls",
    "search_timers",
    "release",
    "commit",
    "lock_walk",
    "note_sweep",
)
_RARE_SECONDS, _ANY_SECONDS = 1.0, 2.0
_AWAY = (0.3, 2.5)
_STALL = (1.2 * STEADY_LEASE_SECONDS, 1.5 * STEADY_LEASE_SECONDS)

WEIGHTS = {
    "kill worker": 5,
    "kill client with workers": 3,
    "kill client": 3,
    "kill scanner": 2,
    "kill collector": 2,
    "kill reader": 2,
    "freeze worker": 4,
    "freeze client with workers": 2,
    "freeze client": 1,
    "freeze scanner": 1,
    "freeze collector": 1,
    "freeze reader": 2,
    "restart PostgreSQL, fast": 2,
    "restart PostgreSQL, immediate": 2,
    "terminate all sessions": 3,
    "cut all connections": 3,
    "hold all packets": 2,
    "partition": 2,
    "standby lost": 1,
    "heartbeats locked out": 1,
    "steps locked out": 1,
    "privileges taken": 1,
    "collector starts amid a stall": 1,
    "archive away": 1,
    PROMOTION: 1,
    RESTORE: 1,
    AtCommit.BEFORE.value: 3,
    AtCommit.DURING.value: 4,
    AtCommit.AFTER.value: 6,
}
_ROLES = {
    "worker": "worker",
    "client with workers": "engine",
    "client": "client",
    "scanner": "scanner",
    "collector": "collector",
    "reader": "reader",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done, to whom, and when by PostgreSQL's clock."""

    kind: str
    target: str
    at: datetime
    seconds: float = 0.0


class Faults:
    """Draws and injects; `done` is the record."""

    def __init__(
        self,
        server: Server,
        proxy: Proxy,
        members: Sequence[Member],
        losses: Losses,
        archive: Place,
        *,
        kinds: Sequence[str] = tuple(WEIGHTS),
        least: int = 0,
        seed: int,
        pause: float,
    ) -> None:
        self._server = server
        self._losses = losses
        self._archive = archive
        self._kinds = kinds
        self._least = least
        self._stalls = Stalls(server)
        self._proxy = proxy
        self._members = members
        self._random = random.Random(seed)
        self._pause = pause
        self._lasting: list[asyncio.Task[None]] = []
        self._kept: set[str] = set()
        self.done: list[Fault] = []
        self.missed = 0

    async def run(self, seconds: float) -> None:
        """Inject for so long, and so many at least; what was frozen or cut off is let go at the end."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        first = self._random.sample(self._kinds, len(self._kinds))
        weights = [WEIGHTS[kind] for kind in self._kinds]
        while loop.time() < end or len(self.done) + self.missed < self._least:
            drawn = self._random.choices(self._kinds, weights)[0]
            await self._inject(first.pop() if first else drawn)
            await asyncio.sleep(min(self._random.expovariate(1 / self._pause), 4 * self._pause))
        await asyncio.gather(*self._lasting)

    async def _inject(self, kind: str) -> None:
        began = now()
        try:
            target = await self._do(kind)
        except psycopg.OperationalError:
            # A restart was still under way for this connection.
            target = None
        if target is None:
            self.missed += 1
            return
        ended = now()
        # A trap lies in wait first, and a copy is made first; the fault is when it springs, or takes over.
        at = ended if kind in tuple(AtCommit) else self._losses.struck if kind in LOSSES else began
        self.done.append(Fault(kind, target, at, (ended - at).total_seconds()))

    async def _do(self, kind: str) -> str | None:
        verb, _, rest = kind.partition(" ")
        if verb in ("kill", "freeze") and rest in _ROLES:
            return self._hit(verb, _ROLES[rest])
        if kind in tuple(AtCommit):
            return await self._cut_at_commit(AtCommit(kind))
        stalls = self._stalls
        others: Mapping[str, Callable[[], Awaitable[str | None]]] = {
            "restart PostgreSQL, fast": lambda: self._restart(signal.SIGINT),
            "restart PostgreSQL, immediate": lambda: self._restart(signal.SIGQUIT),
            "terminate all sessions": self._terminate,
            "cut all connections": self._cut,
            PROMOTION: lambda: self._lose(self._losses.promotion),
            RESTORE: lambda: self._lose(self._losses.restore),
            "hold all packets": lambda: self._keep("packets", self._proxy.held(), _AWAY),
            "partition": lambda: self._keep("lines", self._proxy.partitioned(), _AWAY),
            "standby lost": lambda: self._keep("commits", stalls.standby_lost(), _STALL),
            "heartbeats locked out": lambda: self._keep("workers", stalls.table_locked("workers"), _STALL),
            "steps locked out": lambda: self._keep("tasks", stalls.table_locked("tasks"), _STALL),
            "privileges taken": lambda: self._keep("privileges", stalls.privileges_taken(), _STALL),
            "archive away": lambda: self._keep("archive", self._archive.away(), _STALL),
            "collector starts amid a stall": lambda: self._keep(
                "commits", stalls.standby_lost(), _STALL, begins="collector"
            ),
        }
        return await others[kind]()

    def _hit(self, verb: str, role: str) -> str | None:
        able = [m for m in self._members if m.role == role and not m.stopped]
        if not able:
            return None
        member = self._random.choice(able)
        if verb == "kill":
            return member.name if member.send(signal.SIGKILL) else None
        if not member.freeze():
            return None
        seconds = LEASE_SECONDS * self._random.uniform(1.3, 2.2)
        self._last(self._thaw_later(member, seconds))
        return f"{member.name}, {seconds:.1f} s"

    async def _thaw_later(self, member: Member, seconds: float) -> None:
        await asyncio.sleep(seconds)
        member.thaw()

    def _last(self, fault: Coroutine[None, None, None]) -> None:
        # Kept to the end, where one that failed is heard of.
        self._lasting.append(asyncio.create_task(fault))

    async def _restart(self, how: signal.Signals) -> str:
        away = await asyncio.to_thread(self._server.restart, how)
        return f"away {away:.1f} s"

    async def _lose(self, fault: Callable[[], Awaitable[str]]) -> str:
        # What is held up meanwhile would be undone on a server that is gone.
        await asyncio.gather(*self._lasting)
        return await fault()

    async def _terminate(self) -> str:
        return f"{await asyncio.to_thread(self._server.terminate_sessions)} sessions"

    async def _cut(self) -> str:
        return f"{self._proxy.cut()} connections"

    async def _keep(
        self,
        what: str,
        state: AbstractAsyncContextManager[None],
        lasts: tuple[float, float],
        *,
        begins: str = "",
    ) -> str | None:
        """Done when the state has begun; one of `what` at a time: the end of one would end the other."""
        if what in self._kept:
            return None
        seconds = self._random.uniform(*lasts)
        async with AsyncExitStack() as beginning:
            self._kept.add(what)
            beginning.callback(self._kept.discard, what)
            await beginning.enter_async_context(state)
            self._last(self._let_go_later(beginning.pop_all(), seconds, begins))
        return f"{seconds:.1f} s"

    async def _let_go_later(self, held: AsyncExitStack, seconds: float, begins: str) -> None:
        async with held:
            await asyncio.sleep(seconds)
            if begins:
                # So late that its successor sees the end of the stall and nothing of its begin.
                self._hit("kill", begins)

    async def _cut_at_commit(self, where: AtCommit) -> str | None:
        # First one verb, so that the rare ones have their turn; if it does not come by, any.
        for verbs, seconds in (
            (frozenset({self._random.choice(_CHANGING)}), _RARE_SECONDS),
            (frozenset(_CHANGING), _ANY_SECONDS),
        ):
            trap = self._proxy.trap = Trap(where, verbs)
            try:
                async with asyncio.timeout(seconds):
                    await trap.sprung.wait()
            except TimeoutError:
                self._proxy.trap = None
                if trap.verb:
                    return trap.verb
            else:
                return trap.verb
        return None
