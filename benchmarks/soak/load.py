"""The load: so many operations a second, whatever their answers take, on a population of constant size."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable

from benchmarks.soak.shop import NAMESPACE
from progressor import Client, HandlerFailed, ProcessNotFound

# Per hundred operations. As many processes leave as come.
MIX = {"start": 12, "call": 52, "notify": 15, "get": 6, "remove": 6, "retire": 6, "break": 3}
POPULATION_SECONDS = 60
_PADDING = "x" * 400


class Load:
    """Keeps asking; latencies since the last look, and what went wrong, are there to be read."""

    def __init__(self, client: Client, *, rate: float, seed: int) -> None:
        self._client = client
        self._rate = rate
        self._random = random.Random(seed)
        self._population = max(50, int(rate * MIX["start"] / 100 * POPULATION_SECONDS))
        self._live: deque[str] = deque()
        self._started = 0
        self._asking: set[asyncio.Task[None]] = set()
        self.latencies: dict[str, list[float]] = {}
        self.done: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self._verbs: dict[str, Callable[[str], Awaitable[object]]] = {
            "call": lambda one: client.call(NAMESPACE, one, "add", {"amount": 1}),
            "notify": lambda one: client.notify(NAMESPACE, one, "add", {"amount": 1}),
            "get": lambda one: client.get(NAMESPACE, one),
            "remove": lambda one: client.remove(NAMESPACE, one),
            "retire": lambda one: client.call(NAMESPACE, one, "retire"),
            "break": self._break_and_repair,
        }

    @property
    def under_way(self) -> int:
        """Operations that were begun and have no answer yet."""
        return len(self._asking)

    @property
    def live(self) -> int:
        """Processes that can be asked."""
        return len(self._live)

    def take_latencies(self) -> dict[str, list[float]]:
        """Milliseconds by operation since the last look."""
        taken, self.latencies = self.latencies, {}
        return taken

    async def run(self, seconds: float) -> None:
        """Ask at the fixed rate; a late answer delays no other question."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(int(seconds * self._rate)):
            await asyncio.sleep(max(0.0, began + number / self._rate - loop.time()))
            verb = self._next_verb()
            one = self._subject(verb)
            asking = asyncio.create_task(self._ask(verb, one))
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
        await asyncio.gather(*self._asking)

    def _next_verb(self) -> str:
        if len(self._live) < self._population:
            # The way up, and then one for one.
            leaving = {"remove", "retire", "break"} if self._live else set(MIX) - {"start"}
            mix = {verb: share for verb, share in MIX.items() if verb not in leaving}
        else:
            mix = MIX
        return self._random.choices(list(mix), list(mix.values()))[0]

    def _subject(self, verb: str) -> str:
        match verb:
            case "start":
                self._started += 1
                return f"c{self._started}"
            case "remove" | "retire":
                return self._live.popleft()
            case "break":
                # Nobody else asks it until it is repaired.
                place = self._random.randrange(len(self._live))
                one = self._live[place]
                del self._live[place]
                return one
            case _:
                return self._random.choice(self._live)

    async def _ask(self, verb: str, one: str) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            if verb == "start":
                args = {"padding": _PADDING, "batch": self._started // 1000}
                await self._client.start(NAMESPACE, one, args)
            else:
                await self._verbs[verb](one)
        except ProcessNotFound:
            # It left while this was on its way.
            self.done["gone"] += 1
            return
        except Exception as error:  # noqa: BLE001 - counted; the soak must go on
            self.errors[f"{verb}: {type(error).__name__}: {error!s:.120}"] += 1
            return
        self.latencies.setdefault(verb, []).append((loop.time() - began) * 1000)
        self.done[verb] += 1
        if verb in ("start", "break"):
            self._live.append(one)

    async def _break_and_repair(self, one: str) -> None:
        try:
            await self._client.call(NAMESPACE, one, "break")
        except HandlerFailed:
            pass
        else:
            raise AssertionError("a handler that raises must fail its caller")
        if self._random.random() < 0.5:
            await self._client.repair(NAMESPACE, one)
        else:
            await self._client.simple_repair(NAMESPACE, one)
