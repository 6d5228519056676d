"""The public API against an oracle: whatever handlers do, callers and processes get what the oracle says.

Rule: the machine draws, asks both sides, waits until nothing is under way, and compares. What is asked at
once is compared in the order of its acceptance, which the trace tells.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import hypothesis.strategies as st
import psycopg
import pytest
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from progressor import (
    Client,
    Engine,
    HandlerFailed,
    HistoryRange,
    HistoryTruncated,
    IdempotencyConflict,
    ProcessAlreadyExists,
    ProcessBroken,
    ProcessNotBroken,
    ProcessNotFound,
    Rejected,
    Retention,
    SetTimer,
    TaskNotFound,
    TraceEntry,
)
from tests.model.bank import FAR, NS, Account, Act, Oracle, Outcome, bank
from tests.model.profiles import profile
from tests.support import age, check_invariants

T = TypeVar("T")
# What was asked for, under which key, and its outcome.
Asked = tuple[str, Act, str, Outcome]
IDS = ("a", "b", "c")
_DEADLINE = 30.0
HOUR = timedelta(hours=1)
_FAR_OFF = timedelta(days=100)
_numbers = itertools.count(1)

ids = st.sampled_from(IDS)
sides = st.sampled_from(["inside", "outside"])
names = st.sampled_from(["act", "act", "act_in_thread"])
_fields: dict[str, st.SearchStrategy[Any]] = {
    "add": st.integers(0, 9),
    "emits": st.integers(0, 2),
    "timer": st.sampled_from(["", "", "soon", "far", "unset", "remove soon", "remove far"]),
    "end": st.sampled_from(["answer", "answer", "answer", "answer", "reject", "raise", "fatal", "remove"]),
}
_later = st.builds(Act, **_fields)
acts = st.builds(Act, **_fields, then=st.none() | _later)
# At once with others: nothing whose turn among them is open, or that takes the trace away.
plain_acts = st.builds(
    Act,
    **{
        **_fields,
        "timer": st.sampled_from(["", "", "far", "unset"]),
        "end": st.sampled_from(["answer", "answer", "answer", "answer", "answer", "reject", "raise"]),
    },
)


class Bank:
    """An engine, and a client that shares nothing with it, as long as the machine's run."""

    def __init__(self, dsn: str, runner: asyncio.Runner, **options: Any) -> None:
        self.dsn, self._runner, self._options = dsn, runner, options
        self.engine: Engine
        self.outside = Client(dsn)
        # The tasks of each process, as the last walk found them.
        self.seen: dict[str, set[int]] = {}
        self.run(self.start())
        self.run(self.outside.__aenter__())

    def run(self, act: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(act)

    async def start(self) -> None:
        self.engine = Engine(self.dsn, [bank], scan_interval=timedelta(seconds=1), **self._options)
        await self.engine.__aenter__()

    def client(self, side: str) -> Client:
        return self.engine.client if side == "inside" else self.outside

    async def walk(self, kept: Retention, *, by: timedelta) -> None:
        """Make all that has ended so much older, and run a whole walk."""
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as own:
            cursor = await own.execute(
                "SELECT p.process_id, array_agg(t.task_id) FROM progressor.tasks AS t "
                "JOIN progressor.processes AS p USING (process_no) GROUP BY p.process_id"
            )
            self.seen = {process_id: set(ids) for process_id, ids in await cursor.fetchall()}
        await age(self.dsn, by)
        storage = self.outside._node.storage
        await self.outside.set_retention(NS, kept)
        while not (await self.outside.retention(NS)).ended_at:
            await storage.sweep(rate=1_000_000, namespace=NS)
        # The engine walks, too: it is to delete nothing else, and nothing later.
        await self.outside.set_retention(NS, Retention())

    async def stop(self) -> None:
        await self.engine.stop()

    def close(self) -> None:
        self.run(self.outside.close())
        self.run(self.stop())


async def outcome_of(asked: Awaitable[Any]) -> Outcome:
    """What a caller gets, as the oracle says it."""
    try:
        async with asyncio.timeout(_DEADLINE):
            return "answer", await asked
    except Rejected as error:
        return "rejected", error.reason, error.details
    except HandlerFailed as error:
        return "failed", error.error
    except ProcessBroken:
        return ("broken",)
    except ProcessNotBroken:
        return ("not broken",)
    except ProcessNotFound:
        return ("not found",)
    except ProcessAlreadyExists:
        return ("exists",)


class ApiMachine(RuleBasedStateMachine):
    """Starts, calls, notifications, repairs, imports and removals of three processes."""

    def __init__(self, bank: Bank) -> None:
        super().__init__()
        self.bank, self.oracle = bank, Oracle()
        self.life = next(_numbers)
        # Of what lives; of lives that ended by themselves, whose answers are kept; of what was removed.
        self.asked: dict[str, list[Asked]] = {}
        self.kept: dict[str, list[Asked]] = {}
        self.forgotten: dict[str, list[Asked]] = {}

    def _id(self, process_id: str) -> str:
        return f"{process_id}-{self.life}"

    def _key(self) -> str:
        return f"key-{next(_numbers)}"

    # What every rule does.

    def _compare(self) -> None:
        self.oracle.settle()
        for name in IDS:
            if name not in self.oracle.processes:
                self.kept.setdefault(name, []).extend(self.asked.pop(name, []))
            self.bank.run(self._compare_one(name))

    async def _compare_one(self, name: str) -> None:
        client, process_id = self.bank.outside, self._id(name)
        trace = await self._settled(process_id)
        model = self.oracle.processes.get(name)
        if model is None:
            assert trace is None, trace
            with pytest.raises(ProcessNotFound):
                await client.get(NS, process_id)
            return
        assert trace is not None
        found = await self.bank.engine.client.get(NS, process_id)
        state = found.state or Account()
        assert (found.status, state, found.last_event_id) == (model.status, model.account, model.events)
        assert [each.event_id for each in found.history] == list(range(model.first_event, model.events + 1))
        assert found.first_event_id == model.first_event
        if model.first_event > 2:
            with pytest.raises(HistoryTruncated):
                await client.get(NS, process_id, range=HistoryRange(model.first_event - 2))
        assert (found.detail is None) == (model.status != "error")
        waiting = [(entry.task_type, entry.status) for entry in trace if entry.finished_time is None]
        stands = "held" if model.status == "error" else "waiting"
        kind = None if model.timer is None else "remove" if model.timer.startswith("remove") else "timeout"
        assert waiting == ([] if kind is None else [(kind, stands)])
        shown = found.timer and (found.timer.task_type, found.timer.status)
        assert shown == (kind and (kind, stands))

    async def _settled(self, process_id: str) -> list[TraceEntry] | None:
        """The trace, once nothing is under way but what is far off; None if there is no process."""
        async with asyncio.timeout(_DEADLINE):
            while True:
                try:
                    trace = await self.bank.outside.trace(NS, process_id)
                except ProcessNotFound:
                    return None
                if all(_is_over(entry) for entry in trace):
                    return trace
                await asyncio.sleep(0.002)

    def _ask(self, name: str, kind: str, act: Act, asked: Coroutine[Any, Any, Any], key: str) -> None:
        expected = getattr(self.oracle, kind)(name, act)
        found = self.bank.run(outcome_of(asked))
        assert found == expected
        if found[0] in ("answer", "rejected", "failed"):
            self.asked.setdefault(name, []).append((kind, act, key, found))
        self._compare()

    # Requests one by one.

    @rule(name=ids, act=acts, side=sides)
    def start(self, name: str, act: Act, side: str) -> None:
        key = self._key()
        asked = self.bank.client(side).start(NS, self._id(name), act, idempotency_key=key)
        self._ask(name, "start", act, asked, key)

    @rule(name=ids, act=acts, side=sides, function=names)
    def call(self, name: str, act: Act, side: str, function: str) -> None:
        asked = self.bank.client(side).call(NS, self._id(name), function, act)
        self._ask(name, "call", act, asked, "")

    @rule(name=ids, act=acts, side=sides)
    def call_with_a_key(self, name: str, act: Act, side: str) -> None:
        key = self._key()
        asked = self.bank.client(side).call(NS, self._id(name), "act", act, idempotency_key=key)
        self._ask(name, "call", act, asked, key)

    @rule(name=ids, act=acts, side=sides)
    def notify(self, name: str, act: Act, side: str) -> None:
        expected = self.oracle.call(name, act)
        found = self.bank.run(outcome_of(self.bank.client(side).notify(NS, self._id(name), "act", act)))
        refused = expected[0] in ("not found", "broken")
        assert found == (expected if refused else ("answer", None))
        self._compare()

    @rule(name=ids, act=acts, side=sides)
    def repair(self, name: str, act: Act, side: str) -> None:
        key = self._key()
        asked = self.bank.client(side).repair(NS, self._id(name), act, idempotency_key=key)
        self._ask(name, "repair", act, asked, key)

    @rule(name=ids, side=sides)
    def simple_repair(self, name: str, side: str) -> None:
        expected = self.oracle.simple_repair(name)
        asked = self.bank.client(side).simple_repair(NS, self._id(name))
        assert self.bank.run(outcome_of(asked)) == expected
        self._compare()

    def _asking(self, name: str, side: str, kind: str, act: Act, key: str) -> Coroutine[Any, Any, Any]:
        client, process_id = self.bank.client(side), self._id(name)
        match kind:
            case "call":
                return client.call(NS, process_id, "act", act, idempotency_key=key)
            case "start":
                return client.start(NS, process_id, act, idempotency_key=key)
            case _:
                return client.repair(NS, process_id, act, idempotency_key=key)

    def _again(self, name: str, asked: Asked, side: str, other: Act) -> None:
        kind, act, key, outcome = asked
        assert self.bank.run(outcome_of(self._asking(name, side, kind, act, key))) == outcome
        if other != act:
            with pytest.raises(IdempotencyConflict):
                self.bank.run(self._asking(name, side, kind, other, key))
        self._compare()

    @precondition(lambda self: _keyed(self.asked))
    @rule(place=st.integers(0, 30), side=sides, other=acts)
    def ask_again(self, place: int, side: str, other: Act) -> None:
        """The same key gives the same answer, and does nothing; with another request it is refused."""
        known = _keyed(self.asked)
        self._again(*known[place % len(known)], side, other)

    @precondition(lambda self: _keyed(self.kept))
    @rule(place=st.integers(0, 30), side=sides, other=acts)
    def ask_again_after_the_end(self, place: int, side: str, other: Act) -> None:
        """The same where the process has ended by itself since, whether or not it began anew."""
        known = _keyed(self.kept)
        self._again(*known[place % len(known)], side, other)

    @precondition(lambda self: _keyed(self.forgotten))
    @rule(place=st.integers(0, 30), side=sides)
    def ask_again_after_a_removal(self, place: int, side: str) -> None:
        """A process that was removed by hand is forgotten, keys and all: what is asked again is new."""
        known = _keyed(self.forgotten)
        name, asked = known[place % len(known)]
        self.forgotten[name].remove(asked)
        kind, act, key, _ = asked
        self._ask(name, kind, act, self._asking(name, side, kind, act, key), key)

    # Many at once.

    @rule(asked=st.lists(st.tuples(ids, plain_acts, sides, st.booleans(), names), min_size=2, max_size=8))
    def at_once(self, asked: Sequence[tuple[str, Act, str, bool, str]]) -> None:
        self.bank.run(self._at_once(asked))
        self._compare()

    async def _at_once(self, asked: Sequence[tuple[str, Act, str, bool, str]]) -> None:
        requests = {}
        for name, act, side, waits, function in asked:
            key, client = self._key(), self.bank.client(side)
            send = client.call if waits else client.notify
            sent = send(NS, self._id(name), function, act, idempotency_key=key)
            requests[key] = (name, act, waits, outcome_of(sent))
        found = await asyncio.gather(*(sent for *_, sent in requests.values()))
        outcomes = dict(zip(requests, found, strict=True))
        for name in IDS:
            trace = await self._settled(self._id(name)) or []
            accepted = {entry.idempotency_key: entry for entry in trace}
            own = [key for key, request in requests.items() if request[0] == name]
            # In the order of acceptance; what was not accepted found the process as all others left it.
            order = [key for key in accepted if key in own] + [key for key in own if key not in accepted]
            for key in order:
                _, act, waits, _ = requests[key]
                expected = self.oracle.call(name, act)
                if not waits and key in accepted:
                    assert outcomes[key] == ("answer", None)
                else:
                    assert outcomes[key] == expected
                if key in accepted:
                    assert (accepted[key].status == "cancelled") == (expected == ("broken",))

    # Everything else.

    @rule(
        name=ids,
        balance=st.integers(0, 9),
        events=st.integers(0, 2),
        timer=st.sampled_from([None, "soon", "far", "remove far"]),
        broken=st.booleans(),
        side=sides,
    )
    def put(self, name: str, balance: int, events: int, timer: str | None, broken: bool, side: str) -> None:
        expected = self.oracle.put(name, balance, events, timer, broken=broken)
        action = None
        if timer is not None:
            after = timedelta(0) if timer == "soon" else FAR
            action = SetTimer(after=after, remove=timer.startswith("remove"))
        asked = self.bank.client(side).put(
            NS,
            self._id(name),
            state=Account(balance=balance),
            events=[{"name": "imported"}] * events,
            action=action,
            status="error" if broken else "running",
        )
        assert self.bank.run(outcome_of(asked)) == expected
        self._compare()

    @rule(name=ids, side=sides)
    def remove(self, name: str, side: str) -> None:
        expected = self.oracle.remove(name)
        self.forgotten.setdefault(name, []).extend(self.asked.pop(name, []))
        assert self.bank.run(outcome_of(self.bank.client(side).remove(NS, self._id(name)))) == expected
        self._compare()

    @rule(newest=st.sampled_from([None, 1, 2]), keeps_keys=st.booleans())
    def sweep(self, newest: int | None, keeps_keys: bool) -> None:
        """A walk deletes all that has ended; what is asked again with a key that is gone is new."""
        kept = Retention(tasks=2 * HOUR, keys=6 * HOUR if keeps_keys else None, events=newest)
        self.bank.run(self.bank.walk(kept, by=3 * HOUR))
        self.oracle.sweep(newest)
        for name in IDS:
            left = self.bank.run(self._left(name, keeps_keys=keeps_keys))
            asked = self.asked.pop(name, [])
            self.asked[name] = [each for each in asked if each[2] in left]
            self.forgotten.setdefault(name, []).extend(each for each in asked if each[2] not in left)
        self._compare()

    async def _left(self, name: str, *, keeps_keys: bool) -> set[str | None]:
        """The keys of the tasks that a walk has left, each of which is needed or within its time."""
        client, process_id = self.bank.outside, self._id(name)
        trace = await self._settled(process_id)
        if trace is None:
            return set()
        found = await client.get(NS, process_id)
        for entry in trace:
            is_needed = entry.finished_time is None or entry.task_id == found.corrupted_by
            assert is_needed or (keeps_keys and entry.idempotency_key), entry
        ids = {entry.task_id for entry in trace}
        for task_id in self.bank.seen.get(process_id, set()) - ids:
            with pytest.raises(TaskNotFound) as caught:
                await client.result(NS, process_id, task_id)
            assert caught.value.is_deleted
        return {entry.idempotency_key for entry in trace}

    @rule(really=st.integers(0, 5))
    def restart_the_engine(self, really: int) -> None:
        if not really:
            self.bank.run(self.bank.stop())
            self.bank.run(self.bank.start())
            self._compare()

    def teardown(self) -> None:
        check_invariants(self.bank.dsn)
        for name in IDS:
            self.bank.run(outcome_of(self.bank.outside.remove(NS, self._id(name))))


def _keyed(asked: dict[str, list[Asked]]) -> list[tuple[str, Asked]]:
    return [(name, each) for name, all_of_it in asked.items() for each in all_of_it if each[2]]


def _is_over(entry: TraceEntry) -> bool:
    far_off = entry.status == "waiting" and entry.scheduled_time > datetime.now(UTC) + _FAR_OFF
    return entry.finished_time is not None or far_off or entry.status == "held"


@contextmanager
def opened(dsn: str, **options: Any) -> Iterator[Bank]:
    """A bank on this database, which must be nobody else's."""
    with asyncio.Runner() as runner:
        made = Bank(dsn, runner, **options)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.parametrize("fuse", ["learned", "always"])
def test_the_api_against_the_oracle(dsn: str, fuse: str) -> None:
    """Whatever handlers do, and however they are asked, callers and processes get what the oracle says."""
    with opened(dsn, fuse=fuse) as made:
        run_state_machine_as_test(lambda: ApiMachine(made), settings=profile(quick=15, deep=1000, steps=15))
