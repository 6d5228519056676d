"""A namespace that gives back what it is given, an engine that serves it, and clients to ask it.

Rule: every example asks, beside what may be bad, good neighbours that travel in the same batch; those
must always succeed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from progressor import Client, Engine, Namespace, Process, Reject, RetryPolicy
from tests.support import check_invariants, eventually

NS = "bad.input"
NEIGHBOURS = 3
DEADLINE = 30.0

_numbers = itertools.count(1)


def fresh(prefix: str = "p") -> str:
    """A process id that was never used in this run."""
    return f"{prefix}{next(_numbers)}"


class Results:
    """What the handlers make next, by a token that travels as their arguments."""

    def __init__(self) -> None:
        self._things: dict[str, Any] = {}

    def keep(self, thing: Any) -> str:
        token = fresh("thing")
        self._things[token] = thing
        return token

    def __getitem__(self, token: str) -> Any:
        return self._things[token]


def echo(results: Results) -> Namespace:  # noqa: C901 - a list of handlers
    ns = Namespace(NS, retry_policy=RetryPolicy(max_attempts=1))

    @ns.init
    async def init(process: Process[Any], args: Any = None) -> Any:
        process.state = 0
        return args

    @ns.call
    async def give_back(process: Process[Any], args: Any = None) -> Any:
        return {"args": args, "context": process.context}

    @ns.call
    async def keep(process: Process[Any], args: Any = None) -> None:
        process.state = args
        process.emit("kept", value=args)

    @ns.call
    async def make(process: Process[Any], args: list[str]) -> Any:  # noqa: C901 - a table
        kind, token = args
        thing = results[token]
        match kind:
            case "answer":
                return thing
            case "state":
                process.state = thing
            case "metadata":
                process.metadata["made"] = thing
            case "event":
                process.emit("made", value=thing)
            case "event name":
                process.emit(thing)
            case "events":
                for payload in thing:
                    process.emit("made", value=payload)
            case "reject":
                raise Reject(thing)
            case "details":
                raise Reject("no", made=thing)
            case "raise":
                raise ValueError(thing)
        return None

    return ns


class World:
    """An engine and a client on a loop that lives across the examples of a test."""

    def __init__(self, dsn: str, runner: asyncio.Runner, options: dict[str, Any]) -> None:
        self.dsn = dsn
        self.results = Results()
        self.options = options
        self._runner = runner
        self.engine = Engine(dsn, [echo(self.results)], scan_interval=timedelta(seconds=0.3), **options)
        self.client = Client(dsn, **options)

    def run(self, ask: Awaitable[Any]) -> Any:
        """The result of a coroutine, within the deadline."""

        async def bounded() -> Any:
            async with asyncio.timeout(DEADLINE):
                return await ask

        return self._runner.run(bounded())

    async def in_thread(self, ask: Callable[[], Any]) -> Any:
        """A blocking question."""
        return await asyncio.to_thread(ask)

    async def amid_neighbours(self, ask: Callable[[Client], Awaitable[Any]]) -> Any:
        """What became of one question, value or exception; good ones beside it succeed."""
        good = [self._good(self.client) for _ in range(NEIGHBOURS)]
        outcome, *_ = await asyncio.gather(_outcome(ask, self.client), *good)
        return outcome

    async def _good(self, client: Client) -> None:
        one = client.process(NS, fresh("good"))
        assert await one.start({"n": 1}) == {"n": 1}
        assert await one.call("give_back", [1]) == {"args": [1], "context": None}

    async def begin(self) -> None:
        await self.engine.__aenter__()
        await self.client.__aenter__()

    async def end(self) -> None:
        await self.client.close()
        await self.engine.stop()


async def _outcome(ask: Callable[[Client], Awaitable[Any]], client: Client) -> Any:
    try:
        return await ask(client)
    except Exception as error:  # noqa: BLE001 - the outcome is looked at by the test
        return error


@contextmanager
def a_world(dsn: str, **options: Any) -> Iterator[World]:
    """An engine and a client; at the end nothing is stuck and the tables hold together."""
    with asyncio.Runner() as runner:
        world = World(dsn, runner, options)
        runner.run(world.begin())
        try:
            yield world
            found = world.run(world.client.search(namespace=NS, status="init"))
            assert found.items == [], "a queue is stuck"
            # A step ends a moment after its caller has its answer.
            world.run(eventually(lambda: world.engine.busy == 0, "nothing runs"))
        finally:
            runner.run(world.end())
    check_invariants(dsn)
