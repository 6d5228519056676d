"""Timers that are claimed, run and saved in one transaction, and what may come between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

import psycopg
import pytest

from progressor import Client, Engine, Namespace, Process, RetryPolicy, SetTimer, metrics
from progressor.model import Snapshot
from progressor.storage.postgres.pipeline import Session
from progressor.worker import pool as pool_module
from tests.engine.test_fusing import Commits
from tests.support import NS, check_invariants, eventually

pytestmark = pytest.mark.filterwarnings("error")

AT_ONCE = timedelta(0)
DAY = timedelta(days=1)
# How a timer recurs, and the steps that a look from its handler sees running.
RULES: dict[str, dict[str, Any]] = {
    "one": {},
    "all": {"catch_up": "all"},
    "skip": {"catch_up": "skip"},
    "within": {"within": timedelta(hours=1)},
    "between": {"between": "now"},
}
LATER = timedelta(milliseconds=1)


class Case:
    """An engine whose timers do as the test says, and what they did."""

    def __init__(self, dsn: str, **options: Any) -> None:
        self.fired: list[tuple[str, str]] = []
        self.seen: list[int] = []
        self.failures = 0
        self.dsn = dsn
        policy = RetryPolicy(initial_interval=LATER, max_interval=LATER)
        on_zombie = options.pop("on_zombie", "policy")
        ns = Namespace(NS, concurrency=8, retry_policy=policy, on_zombie=on_zombie)

        @ns.init
        async def begin(process: Process[Any]) -> None:
            process.state = 0

        @ns.call
        async def add(process: Process[Any]) -> None:
            process.state += 1

        @ns.call
        async def arm(process: Process[Any], names: list[str]) -> None:
            for name in names:
                process.set_timer(name, after=LATER)

        @ns.call
        async def repeat(process: Process[Any], rule: str) -> None:
            options = RULES[rule]
            if options.get("between"):
                # It is open for the next hours, whatever the time is.
                is_early = process.now.hour < 12
                options = {"between": (time(0), time(13)) if is_early else (time(11), time(1))}
            process.set_timer(at=process.now + LATER, every=DAY, **options)

        @ns.timeout(fused=options.pop("fused", None))
        async def fire(process: Process[Any]) -> None:
            await self._fire(process)

        @ns.timeout("waiting")
        async def fire_later(process: Process[Any]) -> None:
            await asyncio.sleep(0)
            await self._fire(process)

        @ns.timeout("sending")
        async def send(process: Process[Any]) -> None:
            process.send(NS, "p2", "add")
            await self._fire(process)

        chosen = {"fuse": "always", "zombie_collector": False, "scan_interval": timedelta(hours=1)}
        self.engine = Engine(dsn, [ns], **{**chosen, **options})

    async def _fire(self, process: Process[Any]) -> None:
        with psycopg.connect(self.dsn) as other:
            self.seen += [number for (number,) in other.execute("SELECT count(*) FROM progressor.running")]
        self.fired.append((process.process_id, process.task.name or ""))
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the bank does not answer")
        process.state += 10
        if process.task.name == "again" and len(self.fired) < 3:
            process.set_timer("again", after=AT_ONCE)
        if process.task.name == "soon" and len(self.fired) < 2:
            process.set_timer("soon", after=timedelta(milliseconds=20))

    async def start(self) -> None:
        """Start the processes, and have each function run once: the first run of a worker is not fused."""
        for process_id in ("p1", "p2", "p3"):
            await self.engine.client.start(NS, process_id)
        await self.arm("", "waiting", "sending", process_id="p3")
        await eventually(lambda: len(self.fired) == 3, "they have fired")
        await self.received(1)
        await self.rests()
        assert self.seen[0] == 1
        self.fired.clear()
        self.seen.clear()

    async def received(self, messages: int) -> None:
        """Return once p2 has received so many messages."""
        async with asyncio.timeout(20):
            while await self.state("p2") != messages:  # noqa: ASYNC110 - there is no event to wait on
                await asyncio.sleep(0.01)

    async def arm(self, *names: str, process_id: str = "p1") -> None:
        await self.engine.client.call(NS, process_id, "arm", list(names))

    async def fires(self, *names: str) -> None:
        """Arm the timers of p1, and return once nothing is under way."""
        before = len(self.fired)
        await self.arm(*names)
        await eventually(lambda: len(self.fired) >= before + len(names), "they have fired")
        await self.rests()

    async def rests(self) -> None:
        await eventually(lambda: self.engine.pools[NS].is_idle, "nothing is under way")

    async def state(self, process_id: str = "p1") -> Any:
        return (await self.engine.client.get(NS, process_id)).state

    async def timers(self) -> list[tuple[str, int]]:
        """The status and the attempts of each timer of p1 so far."""
        trace = await self.engine.client.trace(NS, "p1")
        return [(each.status.value, each.attempts_count) for each in trace if each.task_type == "timeout"]


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    return Commits(monkeypatch, "save_")


@pytest.fixture
async def case(dsn: str, request: pytest.FixtureRequest) -> AsyncIterator[Case]:
    case = Case(dsn, **getattr(request, "param", {}))
    async with case.engine:
        await case.start()
        yield case
        await case.rests()
    check_invariants(dsn)


async def test_it_ends_with_its_claim(case: Case, commits: Commits) -> None:
    """One commit for each; nobody sees it running."""
    for _ in range(3):
        await case.fires("")
    assert (commits.made, set(case.seen), await case.state()) == (3, {0}, 30)
    assert await case.timers() == [("finished", 0)] * 3


@pytest.mark.parametrize("case", [{"fused": True, "on_zombie": "error"}], indirect=True)
async def test_who_states_it_is_fused(case: Case, commits: Commits) -> None:
    """Its author answers for it, also where a lost worker breaks the process."""
    await case.fires("")
    assert (commits.made, case.seen, await case.state()) == (1, [0], 10)


@pytest.mark.parametrize(
    "case", [{"fused": False}, {"fuse": "never"}, {"on_zombie": "error"}], indirect=True
)
async def test_who_may_not_begin_unseen(case: Case, commits: Commits) -> None:
    """It is committed as running first."""
    await case.fires("")
    assert (commits.made, case.seen, await case.state()) == (0, [1], 10)


@pytest.mark.parametrize("rule", RULES)
async def test_one_that_may_be_passed_over_begins_behind_its_claim(case: Case, rule: str) -> None:
    """It is committed as running before its handler begins: no claim that is lost lets it be too late."""
    await case.engine.client.call(NS, "p1", "repeat", rule)
    await eventually(lambda: case.fired, "it has fired")
    assert case.seen == [0 if rule in ("one", "all") else 1]


async def test_each_of_several(case: Case) -> None:
    """All timers of a process fire, each in a step of its own; one of them waits for something."""
    await case.fires("", "waiting", "sending", "other")
    assert sorted(name for _, name in case.fired) == ["", "other", "sending", "waiting"]
    assert await case.state() == 40
    await case.received(2)


async def test_what_follows_at_once(case: Case) -> None:
    """It runs in the same slot."""
    await case.fires("again")
    await eventually(lambda: len(case.fired) == 3, "it has gone on")
    await case.rests()
    assert await case.state() == 30


async def test_one_that_fails_is_retried(case: Case) -> None:
    """Its attempts are counted as those of any timer."""
    case.failures = 2
    await case.arm("")
    await eventually(lambda: len(case.fired) == 3, "it has been retried")
    await case.rests()
    assert await case.timers() == [("finished", 2)]
    assert await case.state() == 10


@pytest.mark.parametrize("name", ["", "waiting", "sending"])
@pytest.mark.parametrize("way", ["refused", "lost"])
async def test_a_transaction_that_is_lost(
    dsn: str, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    """Committed or not, the timer fires once, and its handler is not run again."""
    case = Case(dsn)
    async with case.engine:
        await case.start()
        commit, left = Session.commit, 1

        async def losing(session: Session, statements: Any, hints: Any = None) -> Any:
            nonlocal left
            # That of the call has a statement that is fused with it.
            is_claim = left > 0 and not any(each.startswith("fused") for each in statements)
            left -= is_claim
            if is_claim and way == "refused":
                raise psycopg.OperationalError("the connection was lost before COMMIT")
            told = await commit(session, statements, hints)
            if is_claim:
                raise psycopg.OperationalError("the connection was lost at COMMIT")
            return told

        monkeypatch.setattr(Session, "commit", losing)
        await case.fires(name)
        assert left == 0
        assert case.fired == [("p1", name)]
        assert await case.timers() == [("finished", 0)]
        assert await case.state() == 10
    check_invariants(dsn)


async def test_what_waits_behind_it_unseen(
    case: Case, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement that saves the most common ends leaves it alone: it is saved by itself."""
    blind = property(lambda _: ())
    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "timers", blind)
        await case.fires("", "other")
    assert sorted(case.fired) == [("p1", ""), ("p1", "other")]
    assert await case.state() == 20


async def test_a_stop_amid_the_transaction(dsn: str, commits: Commits) -> None:
    """A worker that gives up leaves the timer to others, who have it at once."""
    case = Case(dsn, stop_grace=LATER)
    async with case.engine:
        await case.start()
        commits.gate.clear()
        commits.reached.clear()
        await case.arm("")
        await commits.reached.wait()
    commits.gate.set()
    other = Case(dsn)
    async with other.engine, Client(dsn) as client:
        await eventually(lambda: other.fired == [("p1", "")], "it fires")
        await other.rests()
        assert (await client.get(NS, "p1")).state == 10
    check_invariants(dsn)


async def test_the_step_after_one_whose_answer_was_lost(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer that it has set is due by the repetition, and is a step of its own: none runs again."""
    commit, left = Session.commit, 1
    again = metrics.RUN_AGAIN.labels(NS)._value
    before = again.get()

    async def losing(session: Session, statements: Any, hints: Any = None) -> Any:
        nonlocal left
        told = await commit(session, statements, hints)
        if left and "save_lite" in statements:
            left -= 1
            # Until the next one is due.
            with psycopg.connect(case.dsn) as other:
                other.execute("SELECT pg_sleep(0.05)")
            raise psycopg.OperationalError("the connection was lost at COMMIT")
        return told

    monkeypatch.setattr(Session, "commit", losing)
    await case.fires("soon")
    await eventually(lambda: len(case.fired) == 2, "the next one fires")
    await case.rests()
    assert await case.state() == 20
    assert await case.timers() == [("finished", 0)] * 2
    assert again.get() == before


async def test_without_room_for_large_values_the_next_claim_follows(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a claim hands back is claimed as soon as there is room: nobody else rings for it."""
    monkeypatch.setattr(pool_module, "ROOM", 150_000)
    client = case.engine.client
    await client.pause(NS)
    for place in range(5):
        timer = SetTimer(at=datetime.now(UTC) - DAY)
        await client.put(NS, f"large-{place}", state=0, action=timer)
    with psycopg.connect(case.dsn) as other:
        large = b" " * 100_000 + b"0"
        other.execute(
            "UPDATE progressor.processes SET aux_state = %s WHERE process_id LIKE 'large%%'", [large]
        )
    await client.resume(NS)
    await eventually(lambda: len(case.fired) == 5, "all have fired")
    await case.rests()
    assert await case.state("large-4") == 10
