"""The supervisor: it starts children, each the same command in an OS process of its own, and replaces them.

Rule: it runs no step and uses no database, so that no code of the user can end it. A child that ended is
started again, a little later each time. A lasting fault ends the command instead: one that keeps the first
child from serving, or later a child several times in a row.

A child that has done its share reports it, and goes on: the supervisor starts another in its place, and
stops the first when that one serves. So there is no moment at which fewer serve.

Children are in sessions of their own: a Ctrl-C reaches the supervisor alone, which stops them over their
links. If the supervisor ends in any way, its links end, and the children notice (`link.py`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self, assert_never

from progressor import metrics
from progressor.client.results import Health
from progressor.deployment.health import Liveness, LoopEnded, answered
from progressor.deployment.link import Child, News, Question
from progressor.deployment.merged_metrics import Figures, merged, read
from progressor.loggers import Logger
from progressor.metrics import Family
from progressor.supervision import Background, Pauses

log = Logger("progressor.supervisor")

# Children of one number that may end in a row before they serve; the last one ends the command.
_MOST_FAILURES = 5
# Seconds; a child may take 1.5 for its health, and callers of /health wait for 2; scrapers wait for 10.
_HEALTH_PATIENCE, _METRICS_PATIENCE = 1.8, 5.0


class CannotStart(Exception):
    """No child can serve; `status` is that of the command."""

    def __init__(self, status: int) -> None:
        super().__init__(f"a child ended with status {status} before it served")
        self.status = status


class Supervisor:
    """The children of one command: `async with Supervisor(4): …` begins when the first child serves.

    The first child starts alone, so that a fault is logged once: CannotStart if it ends before it serves.
    Leaving the block stops all children; each may take `patience` seconds. Each inherits the `shared`
    sockets.
    """

    def __init__(
        self, processes: int, *, patience: float = 60.0, shared: Sequence[socket.socket] = ()
    ) -> None:
        self._patience = patience
        self._shared = shared
        self._numbers = range(1, processes + 1)
        # In the order in which they began; two have one number while one replaces the other.
        self._children: list[Child] = []
        self._dead: Figures = ()
        self._background = Background()
        self._loop: asyncio.AbstractEventLoop | None = None
        # Set when a child serves for the first time, or when it is clear that none will.
        self._begun = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failure: CannotStart | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._begin(self._numbers[0])
        try:
            await self._begun.wait()
        except BaseException:
            await self._stop()
            raise
        if self._failure is not None:
            raise self._failure
        for number in self._numbers[1:]:
            self._begin(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()
        if self._failure is not None:
            raise self._failure

    async def _stop(self) -> None:
        self._stopping.set()
        for each in self._shared:
            # Otherwise a caller could still connect after the last child has left, and get no answer.
            each.close()
        for child in self._children:
            child.stop()
        await self._background.ended()

    def kill(self) -> None:
        """Kill all children at once."""
        for child in self._children:
            child.kill()

    def _begin(self, number: int) -> None:
        self._background.keep("child", partial(self._keep, number))

    async def _keep(self, number: int) -> None:
        """Run children of this number, one after the other, until the stop, or until one is replaced."""
        pauses, failures = Pauses(), 0
        while not self._stopping.is_set():
            child = await self._start(number)
            status = await child.ended()
            # Without an await between them: its counts must never be missing from the sums.
            self._children.remove(child)
            self._dead = merged([self._dead, child.figures], {})
            if child.is_spent:
                # The child that takes its place has a `_keep` of its own already.
                _say_relieved(child, status)
                return
            if self._stopping.is_set():
                return
            # A database that is away, or a missing privilege, is no reason to end the children that serve.
            is_passing = status in (os.EX_TEMPFAIL, os.EX_NOPERM)
            failures = 0 if child.serves or is_passing else failures + 1
            if failures == _MOST_FAILURES or not self._begun.is_set():
                self._give_up(child, status)
                return
            await self._pause(child, status, pauses.next())

    async def _start(self, number: int) -> Child:
        child = await Child.started(number, self._patience, self._shared)
        self._children.append(child)
        self._background.begin("link", child.listen(self._take_news))
        if self._stopping.is_set():
            child.stop()
        return child

    def _take_news(self, child: Child, news: News) -> None:
        facts = {"child": child.number, "pid": child.process.pid}
        match news:
            case News.SERVES:
                log.info("child serves", extra=facts)
                child.serves = True
                self._begun.set()
                for each in self._children:
                    if each is not child and each.number == child.number and each.is_spent:
                        each.stop()
            case News.SPENT:
                log.info("child has done its share, starting another in its place", extra=facts)
                child.is_spent = True
                self._begin(child.number)
            case _:
                assert_never(news)

    def _give_up(self, child: Child, status: int) -> None:
        log.error("child does not start, leaving", extra=_end_of(child, status))
        self._failure = CannotStart(status if status >= 0 else 128 - status)
        if self._begun.is_set():
            # Stop the other children as a SIGTERM from outside would.
            signal.raise_signal(signal.SIGTERM)
        self._begun.set()

    async def _pause(self, child: Child, status: int, seconds: float) -> None:
        metrics.BACKGROUND_FAILURES.labels("child").inc()
        facts = {**_end_of(child, status), "pause": round(seconds, 2)}
        log.error("child ended, starting another", extra=facts)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def health(self) -> Health:
        """Return the health of all children together: ok if each number has a child that is ok."""
        answers = await self._ask(Question.HEALTH, _HEALTH_PATIENCE)
        states: dict[int, Health] = {}
        for child, answer in answers:
            # Two children have one number while one replaces the other: one that is ok is enough.
            if child.number not in states or not states[child.number].ok:
                states[child.number] = Health(**answer)
        ill = {
            number: states.get(number, Health(False, "no answer", 0, ()))
            for number in self._numbers
            if number not in states or not states[number].ok
        }
        faults = {each.fault for each in ill.values()}
        return Health(
            not ill,
            "; ".join(f"child {number}: {each.detail}" for number, each in ill.items()) or None,
            max((each.workers for each in states.values()), default=0),
            tuple(sorted({name for each in states.values() for name in each.namespaces})),
            tuple(sorted({name for each in states.values() for name in each.paused})),
            fault=faults.pop() if len(faults) == 1 else None,
            fault_seconds=max((each.fault_seconds or 0.0 for each in ill.values()), default=0.0) or None,
        )

    async def life(self) -> Liveness:
        """Return whether the event loop of each child that serves answers.

        Children that leave do not count: their stop is bounded, and an interpreter that ends cannot answer.
        """
        serving = [child for child in self._children if child.serves]
        states = {
            child: Liveness(**answer) for child, answer in await self._ask(Question.LIFE, _HEALTH_PATIENCE)
        }
        silent = [
            f"child {child.number}: {states[child].detail if child in states else 'no answer'}"
            for child in serving
            # It may have begun to leave after the question.
            if not child.leaves and not (child in states and states[child].ok)
        ]
        return Liveness(not silent, "; ".join(silent) or (None if serving else "no child serves"))

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics of all children as text, and its content type; call it in a thread."""
        if self._loop is None:
            return metrics.exposition(accept, self._known({}))
        try:
            figures = answered(self._figures(), self._loop, 2 * _METRICS_PATIENCE)
        except LoopEnded:
            figures = self._known({})
        return metrics.exposition(accept, figures)

    async def _figures(self) -> list[Family]:
        shown: dict[int, Child] = {}
        for child, answer in await self._ask(Question.METRICS, _METRICS_PATIENCE):
            child.figures = read(answer)
            # If it has ended meanwhile, its figures are already among those of the dead.
            if child in self._children:
                shown[child.number] = child
        return self._known(shown)

    def _known(self, shown: Mapping[int, Child]) -> list[Family]:
        others = (each.figures for each in self._children if shown.get(each.number) is not each)
        newest = {number: child.figures for number, child in shown.items()}
        return merged([metrics.families(), self._dead, *others], newest)

    async def _ask(self, question: Question, patience: float) -> list[tuple[Child, Any]]:
        """Ask all children; return those that answer within `patience` seconds, with their answers."""
        children = list(self._children)
        answers = await asyncio.gather(*(each.ask(question, patience) for each in children))
        return [each for each in zip(children, answers, strict=True) if each[1] is not None]


def _say_relieved(child: Child, status: int) -> None:
    if status == 0:
        log.info("child recycled", extra=_end_of(child, status))
    else:
        log.error("child ended while it was relieved", extra=_end_of(child, status))


def _end_of(child: Child, status: int) -> dict[str, object]:
    how = {"status": status} if status >= 0 else {"signal": signal.Signals(-status).name}
    return {"child": child.number, "pid": child.process.pid, **how}
