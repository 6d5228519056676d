"""Group commit: what travels together, and what becomes of a bad item and of a caller who leaves."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence

import pytest

from progressor.errors import InvalidRequest, StorageUnavailable
from progressor.storage import group_commit
from progressor.storage.group_commit import LEAST_SHARE, MAX_BATCH, MAX_FLIGHTS, Batcher, Room
from progressor.storage.postgres.sqlstates import BatchRefused


class Flights:
    """Takes batches off; each lands when the test lets it."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = asyncio.Event()
        self.poison: dict[str, Exception] = {}
        self.batcher: Batcher[str, str] = Batcher("test", self._run, lambda item: item)

    async def _run(self, items: Sequence[str]) -> list[str]:
        self.batches.append(list(items))
        await self.gate.wait()
        for item in items:
            if item in self.poison:
                raise self.poison[item]
        return [item.upper() for item in items]

    def submit(self, *items: str) -> list[asyncio.Future[str]]:
        return [self.batcher.submit(item) for item in items]


@pytest.fixture
async def flights() -> AsyncIterator[Flights]:
    flights = Flights()
    yield flights
    await flights.batcher.stop()


async def turns(count: int = 5) -> None:
    """Let the loop run: nothing here waits for anything outside of it."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_lone_item_leaves_at_once(flights: Flights) -> None:
    """No timer holds up an item that has no company."""
    (answer,) = flights.submit("a")
    await turns()
    assert flights.batches == [["a"]]
    flights.gate.set()
    assert await answer == "A"


async def test_items_of_one_turn_travel_together(flights: Flights) -> None:
    """What is submitted in the same turn of the loop is one batch; each gets its own answer."""
    flights.gate.set()
    answers = flights.submit("a", "b", "c")
    assert await asyncio.gather(*answers) == ["A", "B", "C"]
    assert flights.batches == [["a", "b", "c"]]


async def test_what_comes_during_a_flight_leaves_with_the_next(flights: Flights) -> None:
    """At most two batches fly; everything that comes meanwhile makes one more."""
    answers = []
    for item in "abcdef":
        answers += flights.submit(item)
        await turns()
    assert flights.batches == [["a"], ["b"]]
    assert len(flights.batches) == MAX_FLIGHTS
    flights.gate.set()
    assert await asyncio.gather(*answers) == list("ABCDEF")
    assert flights.batches == [["a"], ["b"], ["c", "d", "e", "f"]]


async def test_a_defect_leaves_nobody_waiting(flights: Flights, caplog: pytest.LogCaptureFixture) -> None:
    """An answer too few is a defect of the run: every item of the batch fails, and the next one flies."""
    flights.batcher._run = lambda _items: asyncio.sleep(0, result=["A"])
    answers = flights.submit("a", "b")
    with pytest.raises(ValueError, match="zip"):
        await answers[1]
    assert await answers[0] == "A"
    assert [record.part for record in caplog.records] == ["batch"]
    flights.batcher._run, flights.gate = flights._run, asyncio.Event()
    flights.gate.set()
    assert await flights.submit("c")[0] == "C"


async def test_a_batch_has_a_bound(flights: Flights) -> None:
    """More items than a batch takes are spread over several."""
    flights.gate.set()
    items = [f"i{number}" for number in range(2 * MAX_BATCH + 10)]
    assert await asyncio.gather(*flights.submit(*items)) == [item.upper() for item in items]
    assert [len(batch) for batch in flights.batches] == [MAX_BATCH, MAX_BATCH, 10]


async def test_a_crowd_is_shared_out_over_the_free_flights(flights: Flights) -> None:
    """Half of a crowd flies while Python is busy with the other half; few stay together."""
    many = flights.submit(*(f"m{number}" for number in range(2 * LEAST_SHARE + 1)))
    await turns()
    assert [len(batch) for batch in flights.batches] == [LEAST_SHARE + 1, LEAST_SHARE]
    flights.gate.set()
    await asyncio.gather(*many)
    await asyncio.gather(*flights.submit(*(f"f{number}" for number in range(LEAST_SHARE + 1))))
    assert [len(batch) for batch in flights.batches[2:]] == [LEAST_SHARE, 1]


async def test_items_in_conflict_go_one_after_the_other(flights: Flights) -> None:
    """Of items that may stand in a batch only once, the second waits for the next batch, in order."""
    flights.gate.set()
    answers = await asyncio.gather(*flights.submit("a", "b", "a", "c", "a"))
    assert answers == ["A", "B", "A", "C", "A"]
    assert flights.batches == [["a", "b", "c"], ["a"], ["a"]]


async def test_a_crowd_in_conflict_holds_up_nobody_else(flights: Flights) -> None:
    """However many wait for one thing, who comes after them for another leaves with the next batch."""
    flights.gate.set()
    crowd, others = flights.submit(*["a"] * 200), flights.submit("b", "c", "b")
    await asyncio.gather(*others)
    assert flights.batches[:3] == [["a", "b", "c"], ["a", "b"], ["a"]]
    assert not crowd[-1].done()
    await asyncio.gather(*crowd)
    assert [len(batch) for batch in flights.batches[2:]] == [1] * 198


@pytest.mark.parametrize("poison", [InvalidRequest("bad bytes"), ValueError("no such value")])
async def test_a_bad_item_fails_alone(flights: Flights, poison: Exception) -> None:
    """When a batch is refused its items are run one by one, and only the bad one gets the error."""
    flights.gate.set()
    flights.poison["b"] = poison
    results = await asyncio.gather(*flights.submit("a", "b", "c"), return_exceptions=True)
    assert results == ["A", poison, "C"]
    assert flights.batches == [["a", "b", "c"], ["a"], ["b"], ["c"]]


async def test_an_outage_is_everybodys(flights: Flights) -> None:
    """What is no item's fault is told to all of the batch, without trying again."""
    flights.gate.set()
    outage = StorageUnavailable("gone")
    flights.poison["b"] = outage
    results = await asyncio.gather(*flights.submit("a", "b", "c"), return_exceptions=True)
    assert results == [outage] * 3
    assert flights.batches == [["a", "b", "c"]]


async def test_a_caller_who_leaves_takes_nobody_along(flights: Flights) -> None:
    """The item of a cancelled caller stays in its batch, and the others get their answers."""
    first, second, third = flights.submit("a", "b", "c")
    await turns()
    second.cancel()
    await turns()
    flights.gate.set()
    assert [await first, await third] == ["A", "C"]
    assert second.cancelled()
    assert flights.batches == [["a", "b", "c"]]


async def test_stop_tells_who_waits(flights: Flights) -> None:
    """Callers whose items fly or wait when the batcher stops get an error, not a cancellation."""
    answers = []
    for item in "abc":
        answers += flights.submit(item)
        await turns()
    await flights.batcher.stop()
    results = await asyncio.gather(*answers, return_exceptions=True)
    assert [type(result) for result in results] == [StorageUnavailable] * 3


async def test_large_items_go_in_small_company(flights: Flights, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is bounded in bytes, too: an item that has no room in it is the first of the next one."""
    monkeypatch.setattr(group_commit, "MAX_BATCH_BYTES", 10)
    sized = Batcher("test", flights._run, lambda item: item, len)
    flights.gate.set()
    items = ["tiny", "a large one", "b", "c"]
    answers = await asyncio.gather(*(sized.submit(item) for item in items))
    assert answers == [item.upper() for item in items]
    assert flights.batches == [["tiny"], ["a large one"], ["b", "c"]]


async def test_stop_amid_the_isolation_of_a_bad_item(flights: Flights) -> None:
    """Items of a refused batch that were not yet run again are told of the stop, too."""
    flights.poison["b"] = InvalidRequest("bad bytes")
    answers = flights.submit("a", "b", "c")
    await turns()
    flights.gate.set()
    while len(flights.batches) == 1:
        flights.gate.clear()
        await turns(1)
    assert flights.batches[1] == ["a"]
    await flights.batcher.stop()
    results = await asyncio.gather(*answers, return_exceptions=True)
    assert [type(result) for result in results] == [StorageUnavailable] * 3


async def test_nobody_waits_for_a_flight_that_an_interrupt_ends(flights: Flights) -> None:
    """The loop may go on after it."""

    class Interrupt(BaseException):
        pass

    async def run(_items: Sequence[str]) -> list[str]:
        raise Interrupt

    flights.batcher._run = run
    (answer,) = flights.submit("a")
    with pytest.raises(Interrupt):
        await answer


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks of Python 3.11 are never eager")
async def test_a_flight_waits_for_the_end_of_the_turn_also_on_an_eager_loop(flights: Flights) -> None:
    """Otherwise the first item would fly alone, and each flight begin the next one within itself."""
    flights.gate.set()
    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]
    try:
        await asyncio.gather(*flights.submit("a", "b", "c"))
    finally:
        # The loop's own tasks at its end: uvloop's cannot be eager on every Python.
        loop.set_task_factory(None)
    assert flights.batches == [["a", "b", "c"]]


async def test_stop_before_a_flight_has_begun(flights: Flights) -> None:
    """Items whose flight is planned, and stopped before its first step, are told as well."""
    answers = flights.submit("a", "b")
    await flights.batcher.stop()
    async with asyncio.timeout(10):
        results = await asyncio.gather(*answers, return_exceptions=True)
    assert [type(result) for result in results] == [StorageUnavailable] * 2
    assert flights.batches == []


async def test_nothing_is_taken_after_the_stop(flights: Flights) -> None:
    """What comes too late is refused at once."""
    await flights.batcher.stop()
    (late,) = flights.submit("late")
    with pytest.raises(StorageUnavailable, match="closed"):
        await late
    assert flights.batches == []


async def test_one_item_that_is_refused_again_and_again_costs_itself_only(flights: Flights) -> None:
    """Of a batch that was refused twice each item goes alone, and new ones do not wait for the slowest."""
    flights.gate.set()
    stuck = asyncio.Event()

    async def run(items: Sequence[str]) -> list[str]:
        if "bad" in items and len(items) > 1:
            raise BatchRefused
        return await flights._run(items)

    async def run_again(items: Sequence[str]) -> list[str]:
        if items == ["bad"]:
            await stuck.wait()
        return [f"{item} again" for item in await flights._run(items)]

    batcher = Batcher("test", run, lambda item: item, run_again=run_again)
    one, bad, two = (batcher.submit(item) for item in ("one", "bad", "two"))
    assert await asyncio.gather(one, two) == ["ONE again", "TWO again"]
    assert await asyncio.gather(*map(batcher.submit, ("three", "four"))) == ["THREE", "FOUR"]
    assert not bad.done()
    stuck.set()
    assert await bad == "BAD again"
    await batcher.stop()


def _process(item: str) -> str:
    return item[0]


async def test_what_comes_to_a_process_of_which_one_goes_alone(flights: Flights) -> None:
    """It waits for that one, also what waited before; others leave; what is withdrawn never does."""
    leaving = asyncio.Event()

    async def run(items: Sequence[str]) -> list[str]:
        flights.batches.append(list(items))
        await leaving.wait()
        if "b1" in items:
            raise BatchRefused
        return [item.upper() for item in items]

    batcher = Batcher("test", run, lambda item: item, process=_process, run_again=flights._run)
    first = [batcher.submit("b1")]
    await turns()
    other = batcher.submit("a1")
    await turns()
    first += [batcher.submit("b2"), batcher.submit("a2")]
    leaving.set()
    await turns()
    gone = batcher.submit("b3")
    last = batcher.submit("b4")
    assert await asyncio.gather(other, first.pop()) == ["A1", "A2"]
    batcher.withdraw("b3", gone)
    await turns()
    assert flights.batches == [["b1"], ["a1"], ["b1"], ["a2"]]
    assert not batcher.is_idle
    flights.gate.set()
    assert await asyncio.gather(*first, last) == ["B1", "B2", "B4"]
    assert flights.batches[4:] == [["b2", "b4"]]
    assert gone.cancelled()
    await batcher.idle()
    await batcher.stop()


async def test_one_goes_alone_as_the_last_one_before_it_ends() -> None:
    """As the last lone item of its process ends, another flight is refused: it goes, too."""
    loop = asyncio.get_running_loop()
    landing: dict[str, asyncio.Future[None]] = {name: loop.create_future() for name in ("b1", "b2")}
    again = loop.create_future()

    async def run(items: Sequence[str]) -> list[str]:
        await landing[items[0]]
        raise BatchRefused

    async def run_again(items: Sequence[str]) -> list[str]:
        if items == ["b1"]:
            await again
        return [item.upper() for item in items]

    batcher = Batcher("test", run, lambda item: item, process=_process, run_again=run_again)
    answers = [batcher.submit("b1")]
    await turns()
    answers.append(batcher.submit("b2"))
    await turns()
    landing["b1"].set_result(None)
    await turns()
    again.set_result(None)
    landing["b2"].set_result(None)
    assert await asyncio.gather(*answers) == ["B1", "B2"]
    await batcher.idle()
    await batcher.stop()


async def test_however_many_of_one_process_go_alone_others_leave(flights: Flights) -> None:
    """They go in their order, one at a time, and leave the flights to others."""

    async def run(items: Sequence[str]) -> list[str]:
        if any(item.startswith("b") for item in items):
            raise BatchRefused
        return [item.upper() for item in items]

    batcher = Batcher("test", run, lambda item: item, process=_process, run_again=flights._run)
    names = [f"b{number}" for number in range(3 * MAX_BATCH)]
    answers = [batcher.submit(name) for name in names]
    await turns(10)
    assert await batcher.submit("a1") == "A1"
    assert flights.batches == [["b0"]]
    flights.gate.set()
    assert await asyncio.gather(*answers) == [name.upper() for name in names]
    alone = [batch[0] for batch in flights.batches if len(batch) == 1]
    assert alone == sorted(alone, key=lambda name: int(name[1:]))
    await batcher.stop()


async def test_stop_tells_who_waits_for_one_that_goes_alone(flights: Flights) -> None:
    """What waits behind it of its process is told of the stop."""

    async def run(_items: Sequence[str]) -> list[str]:
        raise BatchRefused

    batcher = Batcher("test", run, lambda item: item, process=_process, run_again=flights._run)
    answers = [batcher.submit("b1")]
    await turns()
    answers.append(batcher.submit("b2"))
    await turns()
    await batcher.stop()
    results = await asyncio.gather(*answers, return_exceptions=True)
    assert [type(result) for result in results] == [StorageUnavailable] * 2


async def test_an_error_that_came_after_the_commit(flights: Flights) -> None:
    """Each item is then run as one that may be saved already; what cannot be read fails alone."""
    flights.gate.set()

    async def run(_items: Sequence[str]) -> list[str]:
        raise InvalidRequest("a row cannot be read")

    async def run_again(items: Sequence[str]) -> list[str]:
        if items == ["bad"]:
            raise InvalidRequest("its row cannot be read")
        return [f"{item} again" for item in await flights._run(items)]

    batcher = Batcher("test", run, lambda item: item, run_again=run_again)
    one, bad, two = (batcher.submit(item) for item in ("one", "bad", "two"))
    assert await asyncio.gather(one, two) == ["ONE again", "TWO again"]
    with pytest.raises(InvalidRequest, match="its row"):
        await bad
    await batcher.stop()


async def test_many_refused_items_hold_up_new_ones(flights: Flights) -> None:
    """Where a whole batch stays refused, nothing else is sent before some of it came through."""

    async def run(items: Sequence[str]) -> list[str]:
        flights.batches.append(list(items))
        raise BatchRefused

    batcher = Batcher("test", run, lambda item: item, run_again=flights._run)
    answers = [batcher.submit(f"i{place}") for place in range(2 * MAX_BATCH)]
    await turns()
    assert [len(batch) for batch in flights.batches[:2]] == [MAX_BATCH, MAX_BATCH]
    late = batcher.submit("late")
    await turns()
    assert ["late"] not in flights.batches
    flights.gate.set()
    await asyncio.gather(*answers)
    await turns()
    assert ["late"] in flights.batches
    late.cancel()
    await batcher.stop()


async def test_stop_tells_who_goes_alone(flights: Flights) -> None:
    """Items of a refused batch, each on its way by itself, are told of the stop."""

    async def run(_items: Sequence[str]) -> list[str]:
        raise BatchRefused

    batcher = Batcher("test", run, lambda item: item, run_again=flights._run)
    answers = [batcher.submit(item) for item in "ab"]
    await turns()
    assert flights.batches == [["a"], ["b"]]
    await batcher.stop()
    results = await asyncio.gather(*answers, return_exceptions=True)
    assert [type(result) for result in results] == [StorageUnavailable] * 2


async def test_what_nobody_waits_for_does_not_leave(flights: Flights) -> None:
    """An item that is withdrawn before it left is dropped; one that has left is carried through."""
    answers = []
    for item in "abcd":
        answers += flights.submit(item)
        await turns()
    a, _, c, d = answers
    flights.batcher.withdraw("a", a)
    flights.batcher.withdraw("c", c)
    flights.gate.set()
    assert await asyncio.gather(a, d) == ["A", "D"]
    assert c.cancelled()
    assert flights.batches == [["a"], ["b"], ["d"]]


async def test_room_in_number_and_in_bytes(flights: Flights) -> None:
    """What comes when there is no room is refused at once; with room it is taken again."""
    batcher = Batcher("test", flights._run, lambda item: item, len, room=Room(items=3, size=10))
    flying = []
    for item in "ab":
        flying.append(batcher.submit(item))
        await turns()
    large, small = batcher.submit("x" * 9), batcher.submit("y")
    with pytest.raises(StorageUnavailable, match=r"^overloaded: 2 requests \(10 bytes\)"):
        await batcher.submit("z")
    batcher.withdraw("x" * 9, large)
    more = [batcher.submit(item) for item in ("v", "w")]
    with pytest.raises(StorageUnavailable, match=r"^overloaded: 3 requests \(3 bytes\)"):
        await batcher.submit("z")
    flights.gate.set()
    assert await asyncio.gather(*flying, small, *more) == ["A", "B", "Y", "V", "W"]
    # However large, what comes when nothing waits is taken.
    assert await batcher.submit("x" * 99) == "X" * 99
    await batcher.stop()


async def test_room_for_one_process(flights: Flights) -> None:
    """One of whose requests is held up leaves room for others."""

    async def run(items: Sequence[str]) -> list[str]:
        if items[0].startswith("b"):
            raise BatchRefused
        return [item.upper() for item in items]

    room = Room(items=32, size=100)
    batcher = Batcher("test", run, lambda item: item, process=_process, run_again=flights._run, room=room)
    first = batcher.submit("b")
    await turns(10)
    waiting = [batcher.submit(f"b{number}") for number in range(5)]
    with pytest.raises(StorageUnavailable, match=r"^overloaded: 5 requests for the same process wait"):
        await batcher.submit("b5")
    assert await batcher.submit("a") == "A"
    flights.gate.set()
    assert await asyncio.gather(first, *waiting) == ["B", "B0", "B1", "B2", "B3", "B4"]
    await batcher.stop()


async def test_an_item_of_which_nothing_can_be_told() -> None:
    """It is its caller's error, at once; what waits already leaves."""

    async def run(items: Sequence[list[str] | str]) -> list[str]:
        return ["done" for _ in items]

    batcher: Batcher[list[str] | str, str] = Batcher("test", run, lambda item: item)  # type: ignore[arg-type,return-value]
    answer = batcher.submit("a")
    with pytest.raises(TypeError, match="unhashable"):
        batcher.submit(["b"])
    assert await answer == "done"
    await batcher.stop()
