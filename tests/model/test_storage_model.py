"""Storage against an oracle: any verbs in any order leave the tables, and answer, as the oracle says.

Rule: the machine draws, calls both sides and compares; it knows nothing of what should happen. An
operation whose answer is lost and that is repeated does what it does once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from progressor.config import RetryPolicy
from progressor.model import Outcome, SetTimer, TaskType
from progressor.storage.items import (
    Claimed,
    Continue,
    Duplicate,
    Import,
    LostLease,
    NotPrepared,
    Postpone,
    Prepared,
    Request,
    Saved,
    Step,
    TaskRef,
)
from progressor.storage.operations import Storage
from progressor.transitions import decide
from progressor.worker import _after
from tests.model.draws import (
    KEYS,
    NAMESPACES,
    batches,
    key_of,
    keys,
    losses,
    outcomes,
    places,
    policies,
    process_of,
    timers,
    waits,
    workers,
)
from tests.model.oracle import Key, Oracle, Policy, Task
from tests.model.profiles import profile
from tests.model.world import World, world
from tests.support import SECOND, T0, Held, check_invariants, events, number, request

POLICY = RetryPolicy(max_attempts=3)
AGE, GRACE = 30 * SECOND, 10 * SECOND


class StorageMachine(RuleBasedStateMachine):
    """All verbs of Storage, by three workers, on four processes of two namespaces."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.oracle = world, Oracle(NAMESPACES)
        self.now = T0
        self.held: list[Held] = []
        self.saved: list[Held] = []
        world.empty()
        for namespace in NAMESPACES:
            self._write_policy(namespace)

    # What every rule does.

    def _compare(self) -> None:
        rows = self.world.rows()
        self.oracle.bind(rows["tasks"])
        expected = self.oracle.rows()
        for name, found in rows.items():
            assert sorted(found, key=_place) == sorted(expected[name], key=_place), name
        self.rows = rows

    def _take(self, held: Held) -> None:
        """A worker holds a task: what it knows of task and process must be what the tables say."""
        task, process = held
        key = (task.namespace, task.process_id)
        (row,) = [row for row in self.rows["tasks"] if row[2] == task.task_id]
        assert row == (
            *key, task.task_id, task.task_type, "running", task.scheduled_time, task.running_time,
            None, task.idempotency_key, None, row[10], task.last_retry_interval, task.attempts_count,
            task.worker_id, task.lease, False,
        )  # fmt: skip
        (row,) = [row for row in self.rows["processes"] if row[:2] == key]
        assert row == (
            *key, process.status, process.previous_status, process.status_changed_at,
            process.created_at, process.detail, process.aux_state, process.metadata,
            process.corrupted_by, process.last_event_id,
        )  # fmt: skip
        self.held.append(held)

    def _prepared(self, results: Sequence[Prepared], expected: Sequence[Any], old: set[Task]) -> None:
        self._compare()
        for result, wanted in zip(results, expected, strict=True):
            match result:
                case Continue(task, process):
                    assert wanted not in old
                    assert task.task_id == wanted.task_id
                    self._take(Held(task, process))
                case Postpone(ref):
                    assert wanted not in old
                    assert (ref.task_id, wanted.status) == (wanted.task_id, "waiting")
                case Duplicate(ref, answer):
                    assert wanted in old or wanted.finished_time
                    assert ref.task_id == wanted.task_id
                    assert (answer.status, answer.response, answer.error) == (
                        wanted.status,
                        wanted.response,
                        wanted.error,
                    )
                case NotPrepared(reason, detail):
                    # An init that finds its id taken does not say why that process broke.
                    assert (reason, detail) == wanted

    def _pick(self, among: list[Held], chosen: Sequence[int]) -> list[Held]:
        """Some of these, one for each process."""
        found: dict[Key, Held] = {}
        for place in chosen:
            held = among[place % len(among)]
            found.setdefault((held.task.namespace, held.task.process_id), held)
        return list(found.values())

    # Requests.

    def _prepare(self, verb: str, asked: list[Request], loss: str) -> None:
        old = set(self.oracle.all_tasks())
        prepare = self.oracle.simple_repair if verb == "simple_repair" else self.oracle.prepare
        expected = [prepare(each, self.now) for each in asked]
        results = self.world.run(lambda storage: getattr(storage, verb)(asked, now=self.now), loss)
        self._prepared(results, expected, old)

    @initialize(ends=st.lists(outcomes, min_size=len(KEYS), max_size=len(KEYS)))
    def begin(self, ends: list[Outcome]) -> None:
        """Most examples begin with processes that live."""
        asked = [request(name, TaskType.INIT, namespace=namespace) for namespace, name in KEYS]
        self._prepare("prepare_init", asked, "")
        self.save_result([(place, outcome, False) for place, outcome in enumerate(ends)], "")

    @rule(asked=batches(TaskType.INIT, by=process_of), loss=losses)
    def prepare_init(self, asked: list[Request], loss: str) -> None:
        self._prepare("prepare_init", asked, loss)

    @rule(asked=batches(TaskType.CALL, TaskType.NOTIFY, by=key_of), loss=losses)
    def prepare_call(self, asked: list[Request], loss: str) -> None:
        self._prepare("prepare_call", asked, loss)

    @rule(asked=batches(TaskType.REPAIR, by=key_of), loss=losses)
    def prepare_repair(self, asked: list[Request], loss: str) -> None:
        self._prepare("prepare_repair", asked, loss)

    @rule(asked=batches(TaskType.REPAIR, by=process_of), loss=losses)
    def simple_repair(self, asked: list[Request], loss: str) -> None:
        # Nobody runs it, so there is no worker to offer.
        self._prepare("simple_repair", [each._replace(worker_id=None) for each in asked], loss)

    # Steps.

    def _save(self, chosen: list[Held], ends: Sequence[tuple[Outcome, bool]], loss: str) -> None:
        steps = []
        for held, (outcome, keeps_slot) in zip(chosen, ends, strict=False):
            decision = decide(held.process, held.task, outcome, POLICY)
            steps.append(Step(held.task, held.process, decision, keeps_slot))
        expected = [self.oracle.save(step, self.now) for step in steps]
        results = self.world.run(lambda storage: storage.save_result(steps, now=self.now), loss)
        self._compare()
        for step, result, wanted in zip(steps, results, expected, strict=True):
            if wanted is None:
                assert result == LostLease()
                continue
            assert isinstance(result, Saved)
            assert (result.now, result.due) == (self.now, wanted.due)
            # Who asked for what was cancelled is told once, by the try that did it.
            told = {ref.task_id for ref in result.cancelled}
            assert told == (set() if loss == "late" else wanted.told)
            assert (result.continuation is None) == (wanted.continuation is None)
            if result.continuation is not None and wanted.continuation is not None:
                assert result.continuation.task_id == wanted.continuation.task_id
                after = _after(step.process, step.task, step.decision, result)
                self._take(Held(result.continuation, after))

    @precondition(lambda self: self.held)
    @rule(chosen=st.lists(st.tuples(places, outcomes, st.booleans()), min_size=1, max_size=3), loss=losses)
    def save_result(self, chosen: list[tuple[int, Outcome, bool]], loss: str) -> None:
        picked = self._pick(self.held, [place for place, _, _ in chosen])
        self.held = [held for held in self.held if held not in picked]
        self.saved = [*self.saved, *picked][-4:]
        self._save(picked, [(outcome, keeps or loss == "early") for _, outcome, keeps in chosen], loss)

    @rule(
        asked=batches(TaskType.CALL, TaskType.NOTIFY, by=key_of),
        worker=workers,
        ends=st.lists(outcomes, min_size=4, max_size=4),
        loss=losses,
    )
    def work(self, asked: list[Request], worker: str, ends: list[Outcome], loss: str) -> None:
        """Ask for something, claim everything, and save some of it."""
        self._prepare("prepare_call", asked, "")
        for namespace in NAMESPACES:
            self._claim(namespace, 9, worker, "", timers=False)
            self._claim(namespace, 9, worker, "", timers=True)
        if self.held:
            newest = len(self.held) - 1
            self.save_result([(newest - place, end, True) for place, end in enumerate(ends)], loss)

    work_on = work  # the usual: as often again

    @precondition(lambda self: self.saved)
    @rule(place=places, outcome=outcomes)
    def save_again(self, place: int, outcome: Outcome) -> None:
        """A result that was saved, or lost its lease, is not saved again."""
        self._save(self._pick(self.saved, [place]), [(outcome, True)], "")

    # Claims.

    def _claimed(self, results: Sequence[Claimed], expected: Sequence[Task]) -> None:
        self._compare()
        assert [each.task.task_id for each in results] == [task.task_id for task in expected]
        for each in results:
            self._take(Held(each.task, each.process))

    def _claim(self, namespace: str, limit: int, worker: str, loss: str, *, timers: bool) -> None:
        lease = number()
        expected = self.oracle.claim(namespace, limit, worker, lease, self.now, timers=timers)

        def claim(storage: Storage) -> Any:
            search = storage.search_timers if timers else storage.search_calls
            return search(namespace, limit, worker_id=worker, lease=lease, now=self.now)

        self._claimed(self.world.run(claim, loss), expected)

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        limit=st.sampled_from([9, 1]),
        worker=workers,
        timers=st.booleans(),
        loss=losses,
    )
    def search(self, namespace: str, limit: int, worker: str, timers: bool, loss: str) -> None:
        self._claim(namespace, limit, worker, loss, timers=timers)

    @precondition(lambda self: self.oracle.all_tasks())
    @rule(place=st.integers(0, 20), worker=workers, loss=losses)
    def capture_task(self, place: int, worker: str, loss: str) -> None:
        waiting = [task for task in self.oracle.all_tasks() if task.status == "waiting"]
        among = waiting or self.oracle.all_tasks()
        self._capture(among[place % len(among)], worker, loss)

    def _capture(self, task: Task, worker: str, loss: str) -> None:
        lease = number()
        ref = TaskRef(*task.key, task.task_id)
        wanted = self.oracle.capture(task, worker, lease, self.now)
        result = self.world.run(
            lambda storage: storage.capture_task(ref, worker_id=worker, lease=lease, now=self.now), loss
        )
        self._claimed([result] if result else [], [wanted] if wanted else [])

    @precondition(lambda self: self.held)
    @rule(chosen=st.lists(places, min_size=1, max_size=3), forgets=st.booleans(), loss=losses)
    def hand_back(self, chosen: list[int], forgets: bool, loss: str) -> None:
        picked = self._pick(self.held, chosen)
        for held in picked:
            key = (held.task.namespace, held.task.process_id)
            self.oracle.hand_back(key, held.task.task_id, held.task.lease)
        if forgets:
            self.held = [held for held in self.held if held not in picked]
        self.world.run(lambda storage: storage.hand_back([held.task for held in picked]), loss)
        self._compare()

    @precondition(lambda self: self.held)
    @rule(place=places, worker=workers)
    def take_over(self, place: int, worker: str) -> None:
        """A task goes from one worker to another; the first one does not know, and may still save."""
        (held,) = self._pick(self.held, [place])
        self.hand_back([place], False, "")
        task = next((t for t in self.oracle.all_tasks() if t.task_id == held.task.task_id), None)
        if task is not None:
            self._capture(task, worker, "")

    # Time, workers, operators.

    @rule(by=waits, alive=st.sets(workers), namespace=st.sampled_from(NAMESPACES), policy=policies)
    def meanwhile(self, by: timedelta, alive: set[str], namespace: str, policy: Policy) -> None:
        """Time goes on, some workers beat, an operator changes a namespace."""
        self.now += by
        for worker in alive:
            self.oracle.seen[worker] = self.now
            self.world.tables.set_worker(worker, seen_at=self.now)
        self.oracle.policies[namespace] = policy
        self._write_policy(namespace)

    def _write_policy(self, namespace: str) -> None:
        policy = self.oracle.policies[namespace]
        self.world.tables.set_namespace(
            namespace, paused=policy.paused, on_zombie=policy.on_zombie, max_attempts=policy.max_attempts
        )

    @rule(limit=st.sampled_from([9, 1]), later=waits, loss=losses)
    def collect_zombies(self, limit: int, later: timedelta, loss: str) -> None:
        self.now += later
        expected = self.oracle.collect(AGE, GRACE, limit, self.now)
        if loss == "late":  # what the first try buried is buried; the second one looks again
            expected = self.oracle.collect(AGE, GRACE, limit, self.now)
        results = self.world.run(
            lambda storage: storage.collect_zombies(lease_age=AGE, grace=GRACE, limit=limit, now=self.now),
            loss,
        )
        self._compare()
        found = {
            zombie.task.task_id: (zombie.verdict, {ref.task_id for ref in zombie.cancelled})
            for zombie in results
        }
        assert found == expected

    @rule(loss=losses)
    def drop_leftovers(self, loss: str) -> None:
        self.oracle.drop_leftovers(AGE, 60 * SECOND, self.now)
        self.world.run(
            lambda storage: storage.drop_leftovers(lease_age=AGE, answer_age=60 * SECOND, now=self.now),
            loss,
        )
        self._compare()
        workers = self.world.tables.execute("SELECT worker_id, seen_at FROM workers")
        assert {row["worker_id"]: row["seen_at"] for row in workers} == self.oracle.seen
        self._replies(loss)

    @rule(key=keys, loss=losses)
    def remove(self, key: Key, loss: str) -> None:
        existed, told = self.oracle.remove(key)
        result = self.world.run(lambda storage: storage.remove(*key), loss)
        self._compare()
        # Repeated, it cannot know whether it was itself that removed the process.
        assert result.existed == (existed or bool(loss))
        assert {ref.task_id for ref in result.cancelled} == (set() if loss == "late" else told)

    @rule(key=keys, count=st.integers(0, 2), timer=st.none() | timers, broken=st.booleans(), loss=losses)
    def put(self, key: Key, count: int, timer: SetTimer | None, broken: bool, loss: str) -> None:
        item = Import(
            *key,
            f"put-{number()}",
            status="error" if broken else "running",
            detail="imported as broken" if broken else None,
            aux_state=b"imported",
            metadata={"from": "old"},
            events=events(count),
            timer=None if broken else timer,
        )
        expected = self.oracle.put(item, self.now)
        assert self.world.run(lambda storage: storage.put(item, now=self.now), loss) == expected
        self._compare()

    def _replies(self, loss: str) -> None:
        known = {task.task_id: task for task in self.oracle.all_tasks()}
        refs = [TaskRef(*task.key, task_id) for task_id, task in known.items()]
        refs += [TaskRef(*KEYS[0], -1)]
        *answers, nothing = self.world.run(lambda storage: storage.replies(refs), loss)
        assert nothing.status is None
        for answer, task in zip(answers, known.values(), strict=True):
            assert (answer.status, answer.response, answer.error) == (
                task.status,
                task.response,
                task.error,
            )

    def teardown(self) -> None:
        check_invariants(self.world.dsn)


def _place(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[:3]


def test_storage_against_the_oracle(dsn: str) -> None:
    """Whatever is asked of Storage, and however often, it does what the oracle does."""
    with world(dsn) as made:
        run_state_machine_as_test(
            lambda: StorageMachine(made), settings=profile(quick=100, deep=5000, steps=30)
        )
