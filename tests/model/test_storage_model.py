"""Storage against an oracle: any verbs in any order leave the tables, and answer, as the oracle says.

Rule: the machine draws, calls both sides and compares; it knows nothing of what should happen. An
operation whose answer is lost and that is repeated does what it does once. What was known of a life that
ended is tried again and again: it must not touch the next one.
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

from progressor import transitions
from progressor.config import RetryPolicy
from progressor.model import Intent, Outcome, Remove, SetTimer, Success, TaskType, Timer, TimerStatus
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
from tests.model.draws import (
    KEYS,
    NAMESPACES,
    batches,
    key_of,
    keys,
    long_waits,
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
from tests.support import (
    SECOND,
    T0,
    Held,
    check_invariants,
    collect,
    events,
    evidence,
    nothing,
    number,
    request,
)

POLICY = RetryPolicy(max_attempts=3)
AGE, GRACE = 30 * SECOND, 10 * SECOND
STEP_TIMEOUTS = dict.fromkeys(NAMESPACES, 60 * SECOND)
_VERBS = {TaskType.INIT: "prepare_init", TaskType.REPAIR: "prepare_repair", None: "simple_repair"}


class StorageMachine(RuleBasedStateMachine):
    """All verbs of Storage, by three workers, on four processes of two namespaces."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.oracle = world, Oracle(NAMESPACES)
        self.now = T0
        self.held: list[Held] = []
        self.saved: list[Held] = []
        self.forgotten: list[TaskRef] = []
        world.empty()
        world.tables.set_collector()
        for namespace in NAMESPACES:
            self._write_policy(namespace)

    # What every rule does.

    def _compare(self) -> None:
        rows = self.world.rows()
        self.oracle.bind(rows)
        expected = self.oracle.rows()
        for name, found in rows.items():
            assert sorted(found, key=_place) == sorted(expected[name], key=_place), name
        self.rows = rows

    def _take(self, held: Held) -> None:
        """A worker holds a task: what it knows of task and process must be what the tables say."""
        task, process = held
        key = (task.process_no, task.task_id)
        (row,) = [row for row in self.rows["tasks"] if row[:2] == key]
        assert row == (
            *key, task.task_type, "running", task.scheduled_time, task.running_time, None, task.name,
            task.idempotency_key, task.reply_to, None, row[11], task.last_retry_interval,
            task.attempts_count, task.worker_id, task.lease, row[16],
        )  # fmt: skip
        assert task.process_no == process.process_no
        (row,) = [row for row in self.rows["processes"] if row[0] == process.process_no]
        assert row == (
            process.process_no, task.namespace, task.process_id, process.status, process.previous_status,
            process.status_changed_at, process.created_at, process.detail, process.aux_state,
            process.metadata, process.corrupted_by, process.last_event_id,
        )  # fmt: skip
        assert process.timer == self._timer_of(held)
        self.held.append(held)

    def _timer_of(self, held: Held) -> Timer | None:
        """What a handler sees: its own task, or the timer that comes after it."""
        task, process = held
        if task.task_type.is_timer:
            return Timer(task.task_type, task.scheduled_time, TimerStatus.RUNNING)
        status = TimerStatus.HELD if process.status == "error" else TimerStatus.BLOCKED
        rows = [row for row in self.rows["schedule"] if row[0] == task.process_no]
        timers = [Timer(row[3], row[4], status) for row in rows if TaskType(row[3]).is_timer]
        return timers[0] if timers else None

    def _prepared(self, results: Sequence[Prepared], expected: Sequence[Any], old: set[Task]) -> None:
        self._compare()
        for result, wanted in zip(results, expected, strict=True):
            match result:
                case Continue(task, process):
                    assert wanted not in old
                    assert (task.process_no, task.task_id) == wanted.key
                    self._take(Held(task, process))
                case Postpone(ref):
                    assert wanted not in old
                    assert (ref.key, wanted.status) == (wanted.key, "waiting")
                case Duplicate(ref, answer):
                    assert wanted in old or wanted.finished_time
                    assert ref.key == wanted.key
                    assert (answer.status, answer.response, answer.error) == (
                        wanted.status,
                        wanted.response,
                        wanted.error,
                    )
                case NotPrepared(reason, detail):
                    # An init that finds its id taken does not say why that process broke.
                    assert (reason, detail) == wanted

    def _pick(self, among: list[Held], chosen: Sequence[int]) -> list[Held]:
        """Some of these, one for each life of a process."""
        found: dict[int, Held] = {}
        for place in chosen:
            held = among[place % len(among)]
            found.setdefault(held.task.process_no, held)
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
        # Nobody runs it, so there is no worker to offer, and nothing to wait for.
        asked = [each._replace(worker_id=None, reply_to=None) for each in asked]
        self._prepare("simple_repair", asked, loss)

    # Steps.

    def _save(self, chosen: list[Held], ends: Sequence[tuple[Outcome, bool]], loss: str) -> None:
        steps = []
        for held, (outcome, keeps_slot) in zip(chosen, ends, strict=False):
            decision = decide(held.task, outcome, POLICY)
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
                left = transitions.after(
                    step.process, step.task, step.decision, now=result.now, timer=result.timer
                )
                self._take(Held(result.continuation, left))

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
    def work(self, asked: list[Request], worker: int, ends: list[Outcome], loss: str) -> None:
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

    def _claim(self, namespace: str, limit: int, worker: int, loss: str, *, timers: bool) -> None:
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
    def search(self, namespace: str, limit: int, worker: int, timers: bool, loss: str) -> None:
        self._claim(namespace, limit, worker, loss, timers=timers)

    @precondition(lambda self: self.oracle.all_tasks())
    @rule(place=st.integers(0, 20), worker=workers, loss=losses)
    def capture_task(self, place: int, worker: int, loss: str) -> None:
        waiting = [task for task in self.oracle.all_tasks() if task.status == "waiting"]
        among = waiting or self.oracle.all_tasks()
        self._capture(_ref(among[place % len(among)]), worker, loss)

    def _capture(self, ref: TaskRef, worker: int, loss: str) -> None:
        lease = number()
        wanted = self.oracle.capture(ref.key, worker, lease, self.now)
        result = self.world.run(
            lambda storage: storage.capture_task(ref, worker_id=worker, lease=lease, now=self.now), loss
        )
        self._claimed([result] if result else [], [wanted] if wanted else [])

    @precondition(lambda self: self.held)
    @rule(chosen=st.lists(places, min_size=1, max_size=3), forgets=st.booleans(), loss=losses)
    def hand_back(self, chosen: list[int], forgets: bool, loss: str) -> None:
        picked = self._pick(self.held, chosen)
        for held in picked:
            self.oracle.hand_back(held.ref.key, held.task.lease)
        if forgets:
            self.held = [held for held in self.held if held not in picked]
        self.world.run(lambda storage: storage.hand_back([held.task for held in picked]), loss)
        self._compare()

    @precondition(lambda self: self.held)
    @rule(place=places, worker=workers)
    def take_over(self, place: int, worker: int) -> None:
        """A task goes from one worker to another; the first one does not know, and may still save."""
        (held,) = self._pick(self.held, [place])
        self.hand_back([place], False, "")
        self._capture(held.ref, worker, "")

    # Time, workers, operators.

    @rule(by=waits, alive=st.sets(workers), namespace=st.sampled_from(NAMESPACES), policy=policies)
    def meanwhile(self, by: timedelta, alive: set[int], namespace: str, policy: Policy) -> None:
        """Time goes on, some workers beat, an operator changes a namespace."""
        self.now += by
        for worker in alive:
            self.oracle.seen[worker] = self.now
            self.world.tables.set_worker(worker, seen_at=self.now, step_timeouts=STEP_TIMEOUTS)
        self.oracle.policies[namespace] = policy
        self._write_policy(namespace)

    def _write_policy(self, namespace: str) -> None:
        policy = self.oracle.policies[namespace]
        self.world.tables.set_namespace(
            namespace,
            paused=policy.paused,
            on_zombie=policy.on_zombie,
            zombie_attempts=policy.zombie_attempts,
            max_attempts=policy.max_attempts,
        )

    @rule(limit=st.sampled_from([9, 1]), later=waits, loss=losses)
    def collect_zombies(self, limit: int, later: timedelta, loss: str) -> None:
        self.now += later
        expected = self.oracle.collect(AGE, GRACE, limit, self.now)
        if loss == "late":  # what the first try buried is buried; the second one looks again
            expected = self.oracle.collect(AGE, GRACE, limit, self.now)
        results = self.world.run(
            lambda storage: collect(storage, self.now, lease_age=AGE, grace=GRACE, limit=limit),
            loss,
        )
        self._compare()
        found = {
            each.task.task_id: (each.process_id, each.disposition, {ref.task_id for ref in each.cancelled})
            for each in results
        }
        assert found == expected

    @rule(limit=st.sampled_from([9, 1]), later=long_waits, loss=losses)
    def drop_leftovers(self, limit: int, later: timedelta, loss: str) -> None:
        self.now += later
        more = self.world.run(
            lambda storage: storage.drop_leftovers(
                evidence(self.now), lease_age=AGE, limit=limit, now=self.now
            ),
            loss,
        )
        self.oracle.drop_workers(AGE, self.now)
        left = {row[0] for row in self.world.rows()["removed"]}
        expected = self.oracle.drop_removed(limit, self.now, left)
        if loss == "late":  # what the first try dropped is gone; the second one goes on
            expected = self.oracle.drop_removed(limit, self.now, left)
        assert more == expected
        self._compare()
        serving = "SELECT worker_id, seen_at FROM workers WHERE namespaces <> '{}'"
        workers = self.world.tables.execute(serving)
        assert {row["worker_id"]: row["seen_at"] for row in workers} == self.oracle.seen
        self._replies(loss)

    # What ends, and what begins anew.

    def _remove(self, key: Key) -> tuple[bool, set[int]]:
        """On the oracle's side; what its callers know of this life is tried again later."""
        process = self.oracle.processes.get(key)
        refs = [_ref(task) for task in process.tasks] if process else []
        self.forgotten = [*self.forgotten, *refs][-8:]
        return self.oracle.remove(key)

    @rule(key=keys, looked=st.booleans(), loss=losses)
    def remove(self, key: Key, looked: bool, loss: str) -> None:
        """Lost is its look for the number, or the removal itself."""
        existed, told = self._remove(key)
        looked = looked and existed
        result = self.world.run(lambda storage: storage.remove(*key), loss, spared=int(looked))
        self._compare()
        assert result.existed == existed
        assert {ref.task_id for ref in result.cancelled} == (set() if loss == "late" and looked else told)

    @precondition(lambda self: self.oracle.processes)
    @rule(
        place=places,
        worker=st.none() | workers,
        key=st.sampled_from(["k", None]),
        loss=losses,
        late=st.lists(st.tuples(places, outcomes), min_size=1, max_size=3),
        claims=st.booleans(),
    )
    def remove_and_begin_anew(
        self,
        place: int,
        worker: int | None,
        key: str | None,
        loss: str,
        late: list[tuple[int, Outcome]],
        claims: bool,
    ) -> None:
        """A new life begins, perhaps before a removal that was lost is repeated; the old one goes on."""
        name = list(self.oracle.processes)[place % len(self.oracle.processes)]
        old = self.oracle.processes[name].number
        asked = request(name[1], TaskType.INIT, namespace=name[0], worker_id=worker, key=key)
        before = set(self.oracle.all_tasks())
        begun: list[Prepared] = []

        async def begin() -> None:
            begun.extend(await self.world.storage.prepare_init([asked], now=self.now))

        _, told = self._remove(name)
        result = self.world.run(
            lambda storage: storage.remove(*name),
            loss,
            spared=1,
            meanwhile=begin if loss == "late" else nothing,
        )
        assert result.existed
        assert {ref.task_id for ref in result.cancelled} == (set() if loss == "late" else told)
        expected = self.oracle.prepare(asked, self.now)
        if loss != "late":
            begun = self.world.run(lambda storage: storage.prepare_init([asked], now=self.now))
        self._prepared(begun, [expected], before)
        if claims:
            self._claim(name[0], 9, 1, "", timers=False)
        self._touch_the_old_life(old, late)

    def _touch_the_old_life(self, old: int, late: list[tuple[int, Outcome]]) -> None:
        """Whatever is known of a life that ended is of no use to anybody, and harms nobody."""
        own = [held for held in [*self.held, *self.saved] if held.task.process_no == old]
        for place, outcome in late if own else []:
            held = own[place % len(own)]
            self._save([held], [(outcome, True)], "")
            self.world.run(lambda storage, held=held: storage.hand_back([held.task]))
            self._compare()
        for ref in self.forgotten:
            self._capture(ref, 2, "")
        self._replies("")

    @precondition(lambda self: self.held)
    @rule(
        place=places,
        chosen=places,
        later=long_waits,
        worker=st.none() | workers,
        kinds=st.lists(
            st.sampled_from([TaskType.INIT, TaskType.CALL, TaskType.NOTIFY, TaskType.REPAIR, None]),
            min_size=1,
            max_size=4,
        ),
        broken=st.booleans(),
        loss=losses,
    )
    def end_and_begin_anew(
        self,
        place: int,
        chosen: int,
        later: timedelta,
        worker: int | None,
        kinds: list[TaskType | None],
        broken: bool,
        loss: str,
    ) -> None:
        """A process removes itself; others are asked for under its keys, or new ones.

        `broken`: it has been put again before, as broken, so that a repair could begin.
        """
        (held,) = self._pick(self.held, [place])
        known = [task.idempotency_key for task in self._tasks_of(held.task.process_no)]
        self.save_result([(self.held.index(held), Success(Intent(action=Remove())), True)], loss)
        self.now += later
        task = held.task
        if broken:
            self.put((task.namespace, task.process_id), 0, None, True, "")
        for after, kind in enumerate(kinds):
            # None: a simple repair, which nobody runs.
            asked = request(
                task.process_id,
                kind or TaskType.REPAIR,
                namespace=task.namespace,
                worker_id=worker if kind else None,
                key=[*known, None][(chosen + after) % (len(known) + 1)],
            )
            self._prepare(_VERBS.get(kind, "prepare_call"), [asked], loss)
        self._touch_the_old_life(task.process_no, [(0, Success(Intent()))])

    def _tasks_of(self, process_no: int) -> list[Task]:
        process = self.oracle.alive(process_no)
        return process.tasks if process else []

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
            timer=timer,
        )
        expected = self.oracle.put(item, self.now)
        assert self.world.run(lambda storage: storage.put(item, now=self.now), loss) == expected
        self._compare()

    @rule(key=st.sampled_from(KEYS), lasts=long_waits, later=long_waits, worker=workers, loss=losses)
    def expire(self, key: Key, lasts: timedelta, later: timedelta, worker: int, loss: str) -> None:
        """A process that was put is removed by its timer, and later what was kept of it is dropped."""
        self.remove(key, False, "")
        self.put(key, 1, SetTimer(after=SECOND, remove=True), False, "")
        number = self.oracle.processes[key].number
        self.now += max(lasts, SECOND)
        self._claim(key[0], 9, worker, "", timers=True)
        ends = (Success(Intent(action=Remove())), True)
        for place in [place for place, held in enumerate(self.held) if held.task.process_no == number]:
            self.save_result([(place, *ends)], loss)
        self.drop_leftovers(9, later, "")

    def _replies(self, loss: str) -> None:
        known = self.oracle.all_tasks()
        gone = [ref.key for ref in self.forgotten] + [(-1, -1)]
        refs = [*gone, *(task.key for task in known)]
        answers = self.world.run(lambda storage: storage.replies(refs), loss)
        assert {answer.status for answer in answers[: len(gone)]} == {None}
        for answer, task in zip(answers[len(gone) :], known, strict=True):
            assert (answer.status, answer.response, answer.error) == (
                task.status,
                task.response,
                task.error,
            )

    def teardown(self) -> None:
        check_invariants(self.world.dsn)


def _ref(task: Task) -> TaskRef:
    return TaskRef(task.process.key[0], *task.key)


def _place(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[:3]


def test_storage_against_the_oracle(dsn: str) -> None:
    """Whatever is asked of Storage, and however often, it does what the oracle does."""
    with world(dsn) as made:
        run_state_machine_as_test(
            lambda: StorageMachine(made), settings=profile(quick=100, deep=5000, steps=30)
        )
