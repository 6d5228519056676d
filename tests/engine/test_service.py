"""Periodic services: rounds, errors, and the end."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

from progressor.errors import StorageUnavailable
from progressor.services.service import PeriodicService

TICK = timedelta(microseconds=100)
HOUR = timedelta(hours=1)


class Rounds(PeriodicService):
    """Does what it is told, round after round."""

    name = "rounds"

    def __init__(self, interval: timedelta, answers: Iterator[timedelta | Exception | None]) -> None:
        super().__init__(interval)
        self._answers = answers
        self.count = 0
        self.done = asyncio.Event()

    async def run_once(self) -> timedelta | None:
        self.count += 1
        try:
            answer = next(self._answers)
        except StopIteration:
            self.done.set()
            return HOUR
        if isinstance(answer, Exception):
            raise answer
        return answer


async def finish(service: Rounds) -> None:
    service.start()
    async with asyncio.timeout(30):
        await service.done.wait()
    await service.stop()


async def test_rounds_follow_each_other() -> None:
    """A round follows the other, one interval apart."""
    service = Rounds(TICK, iter([None] * 5))
    await finish(service)
    assert service.count == 6


async def test_a_round_may_ask_for_the_next_one_sooner() -> None:
    """What a round returns is the time until the next one, if that is sooner than the interval."""
    service = Rounds(HOUR, iter([timedelta(0), TICK, timedelta(-1)]))
    await finish(service)
    assert service.count == 4


async def test_an_outage_ends_one_round_only() -> None:
    """An error of ours is survived; the service goes on with the next round."""
    service = Rounds(TICK, iter([StorageUnavailable("gone"), None, StorageUnavailable("again")]))
    await finish(service)
    assert service.count == 4


async def test_a_defect_ends_one_round_only() -> None:
    """Nor does an error of any other kind end a service for good."""
    service = Rounds(TICK, iter([KeyError("a defect"), None]))
    await finish(service)
    assert service.count == 3


async def test_stop_without_start() -> None:
    """A service that was never started can be stopped."""
    await Rounds(TICK, iter([])).stop()


async def test_stop_ends_a_round_that_swallows_its_cancellation() -> None:
    """What a round awaits may turn the cancellation into another error: the service ends all the same."""

    class Stubborn(Rounds):
        async def run_once(self) -> timedelta | None:
            self.done.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("an error of the clean-up") from None
            return None

    async with asyncio.timeout(30):
        await finish(Stubborn(HOUR, iter(())))
