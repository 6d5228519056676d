"""Storage against an oracle: any verbs in any order leave the tables, and answer, as the oracle says.

Rule: the machine draws, calls both sides and compares; it knows nothing of what should happen. An
operation whose answer is lost and that is repeated does what it does once. What was known of a life that
ended is tried again and again: it must not touch the next one. Which of two ways an operation goes is
foretold, too, and at the end each of them was gone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from progressor import transitions
from progressor.archive.pages import ImportOutcome
from progressor.config import NO_RATES, Rates, Retention, RetryPolicy
from progressor.errors import InvalidRequest
from progressor.messages.message import Message
from progressor.model import (
    Decision,
    Intent,
    Outcome,
    Remove,
    Snapshot,
    Success,
    Task as TaskOfWorker,
    TaskStatus,
    TaskType,
    Timer,
    TimerStatus,
)
from progressor.storage import letters
from progressor.storage.admin import sweeps
from progressor.storage.operations import Storage
from progressor.storage.postgres.transactions import Doubtful
from progressor.storage.steps.fused import Fused
from progressor.storage.values import (
    Claimed,
    Continue,
    Duplicate,
    Finished,
    Gone,
    Import,
    Kind,
    LostLease,
    NotPrepared,
    Postpone,
    Prepared,
    Request,
    Saved,
    Step,
    TaskKey,
    TaskOutcome,
    TaskRef,
)
from progressor.timers import SetTimer
from progressor.transitions import decide
from tests.model.draws import (
    KEYS,
    NAMESPACES,
    RATES,
    Sent,
    batches,
    feed_reads,
    feedings,
    flight_ends,
    flight_losses,
    key_of,
    keys,
    long_waits,
    losses,
    often,
    outcomes,
    places,
    policies,
    process_of,
    put_timers,
    retentions,
    round_sizes,
    save_losses,
    seldom,
    sent,
    until_walks,
    waits,
    workers,
)
from tests.model.feed import Follower, Walker, check_feed
from tests.model.oracle import Ended, Key, Oracle, Policy, Task, due_of, is_plain
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
    fuse,
    nothing,
    number,
    request,
)
from tests.transfers import lives, outline, renamed

POLICY = RetryPolicy(max_attempts=3)
# The groups of each namespace, and how many tasks of each may run.
GROUPS, MOST = ("acme", "other"), 1
AGE, GRACE = 30 * SECOND, 10 * SECOND
STEP_TIMEOUTS = dict.fromkeys(NAMESPACES, 60 * SECOND)
# Those in which a request is run behind its lock, and those in which steps are saved.
WAYS = {
    "fused: finished",
    "fused: goes on",
    "fused: saved by itself",
    "fused: early",
    "fused: torn",
    "fused: late",
    "fused: poison",
    "not run at once",
    "claimed beside a flight",
    "save_lite",
    "save_lite; save_result",
    "torn; save_lite; save_result",
    "save_result",
    "save_result; save_result",
    "ripened",
    "claimed in groups",
    "delivered",
    "not delivered",
    "claimed by a rate",
    "rests by its rate",
    "swept",
    "swept in pieces",
    "swept amid others",
    "followed",
    "walked",
    "read to the end",
}
_VARIANT = re.compile("(_timeless|_pausing)?(_feeding)?$")
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
        # The retention of a namespace through which a walk goes.
        self.walks: dict[str, Retention] = {}
        # When rows of the feed may have been deleted last; and its readers.
        self.dropped_at: datetime | None = None
        self.walker: Walker | None = None
        world.empty()
        self.follower = Follower(world.run(lambda storage: storage.feed_head()).first_place)
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
            task.args if task.task_type.is_timer else None,
        )  # fmt: skip
        assert task.process_no == process.process_no
        (row,) = [row for row in self.rows["processes"] if row[0] == process.process_no]
        assert row == _row_of(process)
        self.check_timers(task, process)
        self.held.append(held)

    def check_timers(self, task: TaskOfWorker, process: Snapshot) -> None:
        """A handler sees its own task, if it is a timer, and those that come after it."""
        own = (Timer(task.task_type, task.scheduled_time, TimerStatus.RUNNING, task.name or ""),)
        status = TimerStatus.HELD if process.status == "error" else TimerStatus.BLOCKED
        rows = [row for row in self.rows["schedule"] if row[0] == task.process_no]
        timers = [Timer(row[3], row[4], status, row[6]) for row in rows if TaskType(row[3]).is_timer]
        timers += own if task.task_type.is_timer else ()
        assert sorted(process.timers, key=_order) == sorted(timers, key=_order)

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
                    assert (ref.key[:2], wanted.status) == (wanted.key, "waiting")
                case Duplicate(ref, answer):
                    assert wanted in old or wanted.finished_time
                    assert ref.key[:2] == wanted.key
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

    @initialize(ends=st.lists(outcomes, min_size=len(KEYS), max_size=len(KEYS)), feeding=feedings)
    def begin(self, ends: list[Outcome], feeding: frozenset[str]) -> None:
        """Most examples begin with processes that live."""
        self.oracle.feeding = feeding
        for namespace in feeding:
            self._write_policy(namespace)
        asked = [request(name, TaskType.INIT, namespace=namespace) for namespace, name in KEYS]
        self._prepare("prepare_init", asked, "")
        self.save_result([(place, outcome, False) for place, outcome in enumerate(ends)], "", False)

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

    # Requests that are run behind their locks.

    @rule(
        asked=often(batches(TaskType.CALL, by=process_of), rarely=batches(TaskType.INIT, by=process_of)),
        ends=st.lists(flight_ends, min_size=4, max_size=4),
        loss=flight_losses,
        claims=st.booleans(),
    )
    def fuse(self, asked: list[Request], ends: list[Outcome | None], loss: str, claims: bool) -> None:
        """Accept, run and save at once; None goes on, and the end of what cannot be saved so is saved."""
        self._fuse(asked, ends, loss, claims=claims)

    fuse_more = fuse_often = fuse  # the usual: as often again, and again

    def _fuse(
        self, asked: list[Request], ends: Sequence[Outcome | None], loss: str, *, claims: bool = False
    ) -> None:
        # Who sends it has a slot for each.
        asked = [each._replace(worker_id=each.worker_id or 1) for each in asked]
        turn = Turn(self, asked, ends, poisoned=loss == "poison", claims=claims and not loss)
        old, is_init = set(self.oracle.all_tasks()), asked[0].task_type is TaskType.INIT
        found = self._flown(turn, loss)
        verb = "prepare_init" if is_init else "prepare_call"
        if found is None:
            # Whether it was committed: its requests find that out.
            if loss == "late":
                turn.happened()
            expected = [self.oracle.prepare(each, self.now) for each in asked]
            again = self.world.run(lambda storage: getattr(storage, verb)(asked, now=self.now))
            self._prepared(again, expected, old)
            return
        ended = turn.happened()
        self._claimed(turn.claimed, turn.expected)
        for outcome, wanted in zip(filter(None, found), ended, strict=True):
            self._fused(outcome, wanted, turn)
        self._save_by_itself(turn)
        if left := [each for each, outcome in zip(asked, found, strict=True) if outcome is None]:
            self.world.ways["not run at once"] += 1
            self._prepare(verb, left, "")

    def _flown(self, turn: Turn, loss: str) -> list[Fused] | None:
        """What the flight tells of each; None: it is in doubt."""
        try:
            found = self.world.run(
                lambda storage: fuse(storage, turn.asked, turn.run, now=self.now),
                loss if loss in ("early", "late") else "",
                torn="commit" if loss == "torn" else None,
            )
        except (Doubtful, InvalidRequest):
            assert loss
            self.world.ways[f"fused: {loss}"] += bool(turn.seen) or loss == "early"
            return None
        # What goes on carries no poison into the tables.
        assert not loss or (loss == "poison" and not turn.is_poisoned)
        assert [outcome is not None for outcome in found] == turn.begins
        return found

    def _fused(self, outcome: Fused, wanted: Ended | None, turn: Turn) -> None:
        match outcome:
            case Finished(step, now, due):
                assert wanted is not None
                timer = step.decision.timer
                new = due_of(timer, self.now) if isinstance(timer, SetTimer) else None
                assert (now, due) == (self.now, new)
                assert outcome.answer == TaskOutcome.of(step.decision.reply)
                self.world.ways["fused: finished"] += 1
                self.saved = [*self.saved, Held(step.task, step.process)][-4:]
            case Continue(task, process):
                assert wanted is None
                self.world.ways["fused: goes on"] += 1
                self._take(Held(task, process))

    def _save_by_itself(self, turn: Turn) -> None:
        """What came to an end that ends more than its own task, or goes on at once."""
        for each, outcome in zip(turn.seen, turn.ends, strict=False):
            held = Held(each.task, each.process)
            if outcome is not None and held in self.held:
                self.world.ways["fused: saved by itself"] += 1
                self.save_result([(self.held.index(held), outcome, True)], "", False)

    # Steps.

    def _save(
        self,
        chosen: list[Held],
        ends: Sequence[tuple[Outcome, bool]],
        loss: str,
        *,
        tried: bool = False,
    ) -> list[bool]:
        """Save them; return of each whether it held its lease."""
        steps = []
        for held, (outcome, keeps_slot) in zip(chosen, ends, strict=False):
            feeds = held.task.namespace in self.oracle.feeding
            decision = decide(held.process, held.task, outcome, POLICY, feeds=feeds)
            pause = self.oracle.policies[held.task.namespace].pause
            steps.append(Step(held.task, held.process, decision, keeps_slot and pause is None, pause=pause))
        ways = self._ways(steps, loss, tried=tried)
        torn = "save_result" if loss == "torn" and len(ways) > 1 else None
        expected = [self.oracle.save(step, self.now) for step in steps]
        results = self.world.run(
            lambda storage: storage.save_result(steps, now=self.now, tried=tried),
            loss if loss != "torn" else "",
            torn=torn,
        )
        self._compare()
        # The variants of a statement are one way.
        sent = [_VARIANT.sub("", sent[-1]) for sent in map(_saving, self.world.sent)]
        assert sent == ways, "another way than it should have gone"
        self.world.ways["; ".join(["torn"] * bool(torn) + sent)] += 1
        for step, result, wanted in zip(steps, results, expected, strict=True):
            if wanted is None:
                # Who repeats it hears of what a try before did under the same lease.
                repeats = tried or bool(torn if loss == "torn" else loss)
                known = repeats and self._was_ended_by(step)
                assert isinstance(result, Saved if known else LostLease)
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
                    step.process, step.task, step.decision, now=result.now, timers=result.timers
                )
                self._take(Held(result.continuation, left))
        return [wanted is not None for wanted in expected]

    def _was_ended_by(self, step: Step) -> bool:
        """Whether this worker has ended this task already, of which it was told twice that it holds it."""
        ended = next(
            (
                task
                for task in self.oracle.all_tasks()
                if task.key == (step.task.process_no, step.task.task_id)
            ),
            None,
        )
        return (
            ended is not None and ended.lease == step.task.lease and ended.status is not TaskStatus.RUNNING
        )

    def _ways(self, steps: Sequence[Step], loss: str, *, tried: bool) -> list[str]:
        """The last statements of the transactions in which these are saved."""
        if tried or loss == "early" or not self.oracle.is_lite(steps):
            return ["save_result"] * (2 if loss == "late" else 1)
        left = any(self.oracle.is_left(step) for step in steps)
        # Torn in between or lost at its end, it goes the full way: once for each that is left.
        return ["save_lite"] + ["save_result"] * (left + (loss == "late"))

    @precondition(lambda self: self.held)
    @rule(
        chosen=st.lists(st.tuples(places, outcomes, st.booleans()), min_size=1, max_size=3),
        loss=save_losses,
        tried=seldom,
    )
    def save_result(self, chosen: list[tuple[int, Outcome, bool]], loss: str, tried: bool) -> None:
        picked = self._pick(self.held, [place for place, _, _ in chosen])
        self.held = [held for held in self.held if held not in picked]
        self.saved = [*self.saved, *picked][-4:]
        ends = [(outcome, keeps or loss == "early") for _, outcome, keeps in chosen]
        self._save(picked, ends, loss, tried=tried)

    @rule(
        asked=batches(TaskType.CALL, TaskType.NOTIFY, by=key_of),
        worker=workers,
        ends=st.lists(outcomes, min_size=4, max_size=4),
        loss=save_losses,
    )
    def work(self, asked: list[Request], worker: int, ends: list[Outcome], loss: str) -> None:
        """Ask for something, claim everything, and save some of it."""
        self._prepare("prepare_call", asked, "")
        for namespace in NAMESPACES:
            self._claim(namespace, 9, worker, "", timers=False)
            self._claim(namespace, 9, worker, "", timers=True)
        if self.held:
            newest = len(self.held) - 1
            chosen = [(newest - place, end, True) for place, end in enumerate(ends)]
            self.save_result(chosen, loss, False)

    work_on = work  # the usual: as often again

    @precondition(lambda self: self.saved)
    @rule(place=places, outcome=outcomes)
    def save_again(self, place: int, outcome: Outcome) -> None:
        """A result that was saved, or lost its lease, is not saved again."""
        self._save(self._pick(self.saved, [place]), [(outcome, True)], "")

    @precondition(lambda self: self.held)
    @rule(
        place=places,
        to=st.lists(sent, min_size=1, max_size=3),
        limit=st.sampled_from([9, 1]),
        loss=losses,
        lost=losses,
    )
    def send(self, place: int, to: list[Sent], limit: int, loss: str, lost: str) -> None:
        """The messages of a step become requests of their targets, in order and once, if it is saved."""
        (held,) = self._pick(self.held, [place])
        self.held.remove(held)
        messages = tuple(
            Message(
                *target,
                name=None if starts else "sent",
                kind="start" if starts else "notify",
                idempotency_key=key or f"sent-{number()}",
                request_hash=b"1",
            )
            for target, starts, key in to
        )
        saved = self._save([held], [(Success(Intent(messages=messages)), False)], loss)
        lease, count = number(), "SELECT count(*) AS messages FROM outbox"
        assert self.world.tables.execute(count) == [{"messages": len(messages) * saved[0]}]
        known = set(self.oracle.all_tasks())
        with mock.patch.object(letters, "new_lease", return_value=lease):
            more = saved[0]
            while more:
                more = self.world.run(
                    lambda _: self.world.outbox.deliver(limit=limit, now=self.now), lost
                ).more
                lost = ""
        left = set[Key]()
        for each in messages if saved[0] else ():
            target = each.namespace, each.process_id
            found = None if target in left else self.oracle.deliver(_request(each, lease), self.now)
            if found is None:
                left.add(target)
            is_new = isinstance(found, Task) and found not in known
            self.world.ways["delivered" if is_new else "not delivered"] += 1
        self._compare()
        # What waits for the end of a repair is not followed further.
        rows = self.world.tables.execute("DELETE FROM outbox RETURNING namespace, process_id")
        assert {(row["namespace"], row["process_id"]) for row in rows} == left

    # Claims.

    def _claimed(self, results: Sequence[Claimed], expected: Sequence[Task]) -> None:
        self._compare()
        assert [each.task.task_id for each in results] == [task.task_id for task in expected]
        for each in results:
            self._take(Held(each.task, each.process))

    def _claim(
        self, namespace: str, limit: int, worker: int, loss: str, *, timers: bool, rates: Rates = NO_RATES
    ) -> None:
        lease = number()
        most = self._admitted(namespace, limit, rates)
        expected = self.oracle.claim(namespace, most, worker, lease, self.now, timers=timers)

        def claim(storage: Storage) -> Any:
            kind: Kind = "timers" if timers else "calls"
            about = {"worker_id": worker, "lease": lease, "rates": rates, "now": self.now}
            return storage.search(kind, namespace, limit, **about)

        self._claimed_by(rates, namespace, self.world.run(claim, loss), expected)

    def _admitted(self, namespace: str, limit: int, rates: Rates) -> int:
        if not rates.any:
            return limit
        admitted = self.oracle.bucket(namespace).admits(self.now)
        self.world.ways["rests by its rate"] += not admitted
        return min(limit, admitted)

    def _claimed_by(
        self, rates: Rates, namespace: str, results: Sequence[Claimed], expected: Sequence[Task]
    ) -> None:
        """What was claimed is as expected, and of the rate."""
        if rates.any:
            self.oracle.bucket(namespace).take(len(expected))
            self.world.ways["claimed by a rate"] += bool(expected)
        self._claimed(results, expected)

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        limit=st.sampled_from([9, 1]),
        worker=workers,
        timers=st.booleans(),
        loss=losses,
    )
    def search(self, namespace: str, limit: int, worker: int, timers: bool, loss: str) -> None:
        self._claim(namespace, limit, worker, loss, timers=timers, rates=RATES[worker])

    @rule(namespace=st.sampled_from(NAMESPACES), limit=st.sampled_from([9, 1]), loss=losses)
    def ripen(self, namespace: str, limit: int, loss: str) -> None:
        """What was held until a time that has come may be claimed; a repetition finds the others.

        Timers of groups that are due wait for room.
        """
        found = self.oracle.ripen(namespace, limit, self.now)
        if loss == "late":
            found = self.oracle.ripen(namespace, limit, self.now)
        ripened = self.world.run(lambda storage: storage.ripen(namespace, limit=limit, now=self.now), loss)
        self._compare()
        assert ripened == found
        self.world.ways["ripened"] += bool(found)
        found = self.oracle.queue_timers(namespace, limit, self.now)
        queued = self.world.run(lambda storage: storage.queue_timers(namespace, limit=limit, now=self.now))
        self._compare()
        assert queued == found

    @rule(
        key=keys,
        place=places,
        group=st.sampled_from(GROUPS),
        limit=st.sampled_from([9, 1]),
        worker=workers,
        loss=losses,
    )
    def work_in_groups(self, key: Key, place: int, group: str, limit: int, worker: int, loss: str) -> None:
        """A process begins in a group, or tries to enter it later; what waits there is claimed."""
        if key in KEYS and self.oracle.processes.get(key) is None:
            asked = request(key[1], TaskType.INIT, namespace=key[0], worker_id=worker)
            self._prepare("prepare_init", [asked], "")
        inits = [held for held in self.held if held.task.task_type is TaskType.INIT]
        for held in self._pick(inits or self.held, [place]) if self.held else []:
            self._enter(held, group, loss)
        for namespace in NAMESPACES:
            self._claim_in_groups(namespace, limit, worker, loss, RATES[worker])

    def _enter(self, held: Held, group: str, loss: str) -> None:
        """An init waits for room in a group; nothing else enters one."""
        entered = self.oracle.enter(held.ref.key[:2], held.task.lease, group, self.now)
        found = self.world.run(lambda storage: storage.enter_group(held.task, group), loss)
        self._compare()
        # The second try does not find what the first one moved.
        assert (found is not None) == (entered and loss != "late")

    def _claim_in_groups(self, namespace: str, limit: int, worker: int, loss: str, rates: Rates) -> None:
        rows = self.world.tables.execute("SELECT group_no, group_key FROM groups ORDER BY group_no")
        names = {row["group_no"]: row["group_key"] for row in rows}
        with_room = self.world.run(
            lambda storage: storage.groups_with_room(namespace, rates=rates, now=self.now)
        ).group_nos
        groups = [names[group_no] for group_no in with_room]
        assert all(self.oracle.room(namespace, group, MOST) > 0 for group in groups)
        if rates.any:
            assert all(self.oracle.bucket(namespace, group).admits(self.now) > 0 for group in groups)
        lease = number()
        most = self._admitted(namespace, limit, rates)
        expected = self.oracle.claim_in(
            namespace, groups, most, MOST, worker, lease, self.now, rated=rates.any
        )

        def claim(storage: Storage) -> Any:
            about = {"worker_id": worker, "lease": lease, "rates": rates, "now": self.now}
            return storage.search_groups(namespace, limit, groups=with_room, **about)

        self._claimed_by(rates, namespace, self.world.run(claim, loss), expected)
        self.world.ways["claimed in groups"] += bool(expected)

    @rule(place=st.integers(0, 20), worker=workers, loss=losses)
    def capture_task(self, place: int, worker: int, loss: str) -> None:
        # No precondition: how many tasks a round of a walk deletes is the database's to choose.
        if not self.oracle.all_tasks():
            return
        waiting = [task for task in self.oracle.all_tasks() if task.status == "waiting"]
        among = waiting or self.oracle.all_tasks()
        self._capture(_ref(among[place % len(among)]), worker, loss, RATES[worker])

    def _capture(self, ref: TaskRef, worker: int, loss: str, rates: Rates = NO_RATES) -> None:
        lease = number()
        wanted = None
        if self._admitted(ref.namespace, 1, rates):
            wanted = self.oracle.capture(ref.key[:2], worker, lease, self.now)
        about = {"worker_id": worker, "lease": lease, "rates": rates, "now": self.now}
        result = self.world.run(lambda storage: storage.capture_task(ref, **about), loss)
        found, expected = [result] if result else [], [wanted] if wanted else []
        self._claimed_by(rates, ref.namespace, found, expected)

    @precondition(lambda self: self.held)
    @rule(chosen=st.lists(places, min_size=1, max_size=3), forgets=st.booleans(), loss=losses)
    def hand_back(self, chosen: list[int], forgets: bool, loss: str) -> None:
        picked = self._pick(self.held, chosen)
        for held in picked:
            self.oracle.hand_back(held.ref.key[:2], held.task.lease)
        if forgets:
            self.held = [held for held in self.held if held not in picked]
        self.world.run(lambda storage: storage.hand_back([held.task for held in picked]), loss)
        self._compare()

    @precondition(lambda self: self.held)
    @rule(place=places, forgets=st.booleans(), loss=losses)
    def hand_back_unsaved(self, place: int, forgets: bool, loss: str) -> None:
        """The transaction of a handler was lost."""
        (held,) = self._pick(self.held, [place])
        why, now = (SECOND, "its connection was lost"), self.now
        self.oracle.hand_back_unsaved(held.ref.key[:2], held.task.lease, *why, now)
        if forgets:
            self.held.remove(held)
        self.world.run(lambda storage: storage.hand_back_unsaved(held.task, *why, now=now), loss)
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
            feed=namespace in self.oracle.feeding,
        )
        self.world.tables.execute("UPDATE namespaces SET options = options || '{\"group_limit\": 1}'")

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
        seen = evidence(self.now)
        self.world.run(lambda storage: storage.drop_workers(seen, lease_age=AGE), loss)
        more = self.world.run(
            lambda storage: storage.drop_leftovers(limit=limit, now=self.now),
            loss,
        )
        self.oracle.drop_workers(AGE, self.now)
        rows = self.world.rows()
        left, fed = ({row[0] for row in rows[name]} for name in ("removed", "leftovers"))
        # What the first try dropped is gone; the second one goes on.
        for _ in range(2 if loss == "late" else 1):
            expected = self.oracle.drop_removed(limit, self.now, left)
            self.oracle.drop_fed(limit, self.now, fed)
        # There may be more of the feed.
        assert more == expected or (more and self.oracle.feeding)
        self.dropped_at = self.now
        self._compare()
        serving = "SELECT worker_id, seen_at FROM workers WHERE namespaces <> '{}'"
        workers = self.world.tables.execute(serving)
        assert {row["worker_id"]: row["seen_at"] for row in workers} == self.oracle.seen
        self._replies(loss)

    # Retention.

    def _round(self, namespace: str, sizes: tuple[int, ...], loss: str, *, whole: bool) -> bool:
        """A round of a walk, if it is due; return whether the walk has ended."""
        names = ("_LOOKS", "_READS", "_HELD", "_ROWS")
        with mock.patch.multiple(sweeps, **dict(zip(names, sizes, strict=True))):
            self.world.run(
                lambda storage: storage.sweep(rate=1_000_000, namespace=namespace, now=self.now), loss
            )
        known = self.world.run(lambda storage: storage.retention(namespace))
        assert known is not None
        assert known.began_at is not None
        is_over = known.ended_at is not None
        count = self.oracle.sweep(
            namespace, self.walks[namespace], known.began_at, self.world.rows(), whole=whole and is_over
        )
        self.world.ways["swept" if whole else "swept amid others"] += bool(count)
        self.world.ways["swept in pieces"] += whole and bool(count) and not is_over
        self._compare()
        return is_over

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        kept=retentions,
        later=until_walks,
        sizes=round_sizes,
        whole=st.booleans(),
        loss=losses,
    )
    def sweep(
        self,
        namespace: str,
        kept: Retention,
        later: timedelta,
        sizes: tuple[int, ...],
        whole: bool,
        loss: str,
    ) -> None:
        """A walk begins: as a whole, or with a round of which the next come amid whatever follows.

        A task that it deleted answers nobody, and whoever asks with its key asks for something new.
        """
        self.now += later
        self.world.run(lambda storage: storage.set_retention(namespace, kept, now=self.now))
        self.walks[namespace] = kept
        is_over = self._round(namespace, sizes, loss, whole=whole)
        while whole and not is_over:
            self.now += SECOND
            is_over = self._round(namespace, sizes, "", whole=True)
        self._replies("")

    @precondition(lambda self: self.walks)
    @rule(place=places, sizes=round_sizes, loss=losses)
    def sweep_on(self, place: int, sizes: tuple[int, ...], loss: str) -> None:
        """The next round of a walk that is under way, or the first of the next walk."""
        self.now += SECOND
        namespace = list(self.walks)[place % len(self.walks)]
        self._round(namespace, sizes, loss, whole=False)

    # The feed.

    @precondition(lambda self: self.oracle.feeding)
    @rule(what=feed_reads, limit=st.sampled_from([1, 3, 1000]), loss=losses)
    def read_the_feed(self, what: str, limit: int, loss: str) -> None:
        """Its rows are numbered, it is read as a whole, or one of its readers goes on."""
        if what == "number":
            self.world.run(lambda storage: storage.feed_head(), loss)
        elif what == "all":
            check_feed(self.world, self.oracle, self.dropped_at, limit=limit)
        elif what == "follow":
            self.follower.read(self.world, limit, loss)
            self.world.ways["followed"] += 1
        else:
            self.walker = self.walker or Walker(self.world, self.oracle)
            self.walker.read(self.world, limit, loss)
            self.world.ways["walked"] += 1
        self._compare()

    def _read_to_the_end(self) -> None:
        self.follower.check(self.world, self.oracle)
        if self.walker is not None:
            self.walker.check(self.world, self.oracle)
        check_feed(self.world, self.oracle, self.dropped_at, limit=1000)
        self.world.ways["read to the end"] += bool(self.oracle.fed)

    # What ends, and what begins anew.

    def _remove(self, key: Key) -> tuple[bool, set[int]]:
        """On the oracle's side; what its callers know of this life is tried again later."""
        process = self.oracle.processes.get(key)
        refs = [_ref(task) for task in process.tasks] if process else []
        self.forgotten = [*self.forgotten, *refs][-8:]
        return self.oracle.remove(key, self.now)

    @rule(key=keys, looked=st.booleans(), loss=losses)
    def remove(self, key: Key, looked: bool, loss: str) -> None:
        """Lost is its look for the number, or the removal itself."""
        existed, told = self._remove(key)
        looked = looked and existed
        result = self.world.run(
            lambda storage: storage.remove(*key, now=self.now), loss, spared=int(looked)
        )
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
            lambda storage: storage.remove(*name, now=self.now),
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
        fused=st.booleans(),
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
        fused: bool,
        loss: str,
    ) -> None:
        """A process removes itself; others are asked for under its keys, or new ones.

        `broken`: it has been put again before, as broken, so that a repair could begin.
        """
        (held,) = self._pick(self.held, [place])
        known = [task.idempotency_key for task in self._tasks_of(held.task.process_no)]
        ending = (self.held.index(held), Success(Intent(action=Remove())), True)
        self.save_result([ending], loss, False)
        self.now += later
        task = held.task
        if broken:
            self.put((task.namespace, task.process_id), 0, (), True, "")
        for after, kind in enumerate(kinds):
            # None: a simple repair, which nobody runs.
            asked = request(
                task.process_id,
                kind or TaskType.REPAIR,
                namespace=task.namespace,
                worker_id=worker if kind else None,
                key=[*known, None][(chosen + after) % (len(known) + 1)],
            )
            if fused and kind in (TaskType.INIT, TaskType.CALL):
                self._fuse([asked], [Success(Intent())], loss)
            else:
                self._prepare(_VERBS.get(kind, "prepare_call"), [asked], loss)
        self._touch_the_old_life(task.process_no, [(0, Success(Intent()))])

    def _tasks_of(self, process_no: int) -> list[Task]:
        process = self.oracle.alive(process_no)
        return process.tasks if process else []

    @rule(key=keys, count=st.integers(0, 2), timers=put_timers, broken=st.booleans(), loss=losses)
    def put(self, key: Key, count: int, timers: tuple[SetTimer, ...], broken: bool, loss: str) -> None:
        item = Import(
            *key,
            f"put-{number()}",
            status="error" if broken else "running",
            detail="imported as broken" if broken else None,
            aux_state=b"imported",
            metadata={"from": "old"},
            events=events(count),
            timers=timers,
        )
        expected = self.oracle.put(item, self.now)
        assert self.world.run(lambda storage: storage.put(item, now=self.now), loss) == expected
        self._compare()

    @rule(key=st.sampled_from(KEYS), lasts=long_waits, later=long_waits, worker=workers, loss=losses)
    def expire(self, key: Key, lasts: timedelta, later: timedelta, worker: int, loss: str) -> None:
        """A process that was put is removed by its timer, and later what was kept of it is dropped."""
        self.remove(key, False, "")
        self.put(key, 1, (SetTimer(after=SECOND, remove=True),), False, "")
        number = self.oracle.processes[key].number
        self.now += max(lasts, SECOND)
        self._claim(key[0], 9, worker, "", timers=True)
        ends = (Success(Intent(action=Remove())), True)
        for place in [place for place, held in enumerate(self.held) if held.task.process_no == number]:
            self.save_result([(place, *ends)], loss, False)
        self.drop_leftovers(9, later, "")

    def _replies(self, loss: str) -> None:
        known = self.oracle.all_tasks()
        gone = [ref.key for ref in (*self.forgotten, TaskRef(NAMESPACES[0], -1, -1))]
        stored, swept = self._keys(), self._swept_keys()
        keys = [*gone, *swept, *(stored[task.key] for task in known)]
        answers = self.world.run(lambda storage: storage.replies(keys), loss)
        assert {answer.status for answer in answers[: len(gone)]} == {None}
        answers = answers[len(gone) :]
        assert {(each.status, each.gone) for each in answers[: len(swept)]} <= {(None, Gone.SWEPT)}
        for answer, task in zip(answers[len(swept) :], known, strict=True):
            assert (answer.status, answer.response, answer.error) == (
                task.status,
                task.response,
                task.error,
            )

    def _keys(self) -> dict[tuple[int, int], TaskKey]:
        """The identities of all tasks that are stored."""
        rows = self.world.tables.execute(
            "SELECT t.process_no, t.task_id, coalesce(p.birth, r.birth) AS birth, "
            "t.idempotency_key, t.request_hash FROM tasks AS t "
            "LEFT JOIN processes AS p USING (process_no) "
            "LEFT JOIN removed_processes AS r USING (process_no)"
        )
        return {(row["process_no"], row["task_id"]): TaskKey(**row) for row in rows}

    def _swept_keys(self) -> list[TaskKey]:
        """The identities of the tasks that walks deleted, of processes that live."""
        rows = self.world.tables.execute("SELECT process_no, birth FROM processes")
        births = {row["process_no"]: row["birth"] for row in rows}
        return [
            TaskKey(
                *task.key,
                births[process.number],
                task.idempotency_key,
                task.request.request_hash if task.request else None,
            )
            for process in self.oracle.processes.values()
            for task in process.swept
        ]

    def teardown(self) -> None:
        self._read_to_the_end()
        check_invariants(self.world.dsn)
        self._copy_all()
        check_invariants(self.world.dsn)

    def _copy_all(self) -> None:
        """Import a copy of all that the example left, and compare."""
        known = lives(self.world.tables)
        wholes = self.world.run(lambda storage: storage.whole(known))
        copies = [renamed(each) for each in wholes]
        outcomes = self.world.run(lambda storage: storage.import_processes(copies, now=self.now))
        assert outcomes == [ImportOutcome.IMPORTED] * len(wholes)
        new = lives(self.world.tables)[len(known) :]
        found = self.world.run(lambda storage: storage.whole(new))
        assert [outline(each) for each in found] == [outline(each) for each in wholes]


class Turn:
    """The turn of the loop in which the handlers of a flight run: what they see, and what becomes of it."""

    def __init__(
        self,
        machine: StorageMachine,
        asked: list[Request],
        ends: Sequence[Outcome | None],
        *,
        poisoned: bool,
        claims: bool,
    ) -> None:
        self.asked, self.ends, self.seen = asked, ends, list[Claimed]()
        self.begins = [machine.oracle.begins(each) for each in asked]
        self.claimed, self.expected = list[Claimed](), list[Task]()
        self.is_poisoned = False
        self._machine, self._poisoned, self._claims = machine, poisoned, claims
        self._decisions: list[Decision | None] = []

    async def run(self, claimed: Sequence[Claimed]) -> Sequence[Decision | None]:
        self.seen = list(claimed)
        begun = [each for each, begins in zip(self.asked, self.begins, strict=True) if begins]
        for asked, (task, process) in zip(begun, claimed, strict=True):
            self._check(asked, task, process)
        self._decisions = [
            None if end is None else self._decided(each, end)
            for each, end in zip(claimed, self.ends, strict=False)
        ]
        if self._claims:
            await self._claim()
        return self._decisions

    def _decided(self, held: Claimed, end: Outcome) -> Decision:
        feeds = held.task.namespace in self._machine.oracle.feeding
        decision = decide(held.process, held.task, end, POLICY, feeds=feeds)
        if self._poisoned and is_plain(decision, self._machine.now) and decision.status is not None:
            # No jsonb takes it.
            self.is_poisoned = True
            return decision._replace(metadata={"bad": "\x00"})
        return decision

    def _check(self, asked: Request, task: TaskOfWorker, process: Snapshot) -> None:
        """Behind the lock a handler sees what it would see if its task were committed as running."""
        now = self._machine.now
        assert task == TaskOfWorker(
            asked.namespace, asked.process_id, task.task_id, asked.task_type, asked.name, asked.args,
            context=asked.context, idempotency_key=asked.idempotency_key, scheduled_time=now,
            running_time=now, process_no=process.process_no, reply_to=asked.reply_to,
            worker_id=asked.worker_id, lease=asked.lease, request_hash=asked.request_hash,
        )  # fmt: skip
        rows = [row for row in self._machine.rows["processes"] if row[1:3] == asked[:2]]
        if asked.task_type is TaskType.INIT:
            new = (process.process_no, *asked[:2], "init", None, now, now, None, None, {}, None, 0)
            assert (rows, _row_of(process), process.timers) == ([], new, ())
        else:
            assert rows == [_row_of(process)]
            self._machine.check_timers(task, process)

    async def _claim(self) -> None:
        """Another worker claims timers meanwhile: those of processes that are locked are not for it."""
        machine, lease, namespace = self._machine, number(), self.seen[0].task.namespace
        calls = [process_of(each) for each in self.asked if each.task_type is TaskType.CALL]
        self.expected = machine.oracle.claim(namespace, 9, 2, lease, machine.now, timers=True, locked=calls)
        self.claimed = await machine.world.storage.search(
            "timers", namespace, 9, worker_id=2, lease=lease, now=machine.now
        )
        machine.world.ways["claimed beside a flight"] += bool(self.claimed)

    def happened(self) -> list[Ended | None]:
        """It is committed: on the oracle's side, too."""
        begun = [each for each, begins in zip(self.asked, self.begins, strict=True) if begins]
        return [
            self._machine.oracle.fuse(asked, held, decision, self._machine.now)
            for asked, held, decision in zip(begun, self.seen, self._decisions, strict=True)
        ]


def _request(message: Message, lease: int) -> Request:
    """The request that a message becomes."""
    kind = TaskType.INIT if message.kind == "start" else TaskType.NOTIFY
    key = str(message.idempotency_key)
    return request(
        message.process_id,
        kind,
        namespace=message.namespace,
        worker_id=None,
        key=key,
        request_hash=b"1",
        name=message.name,
        lease=lease,
    )


def _saving(sent: tuple[str, ...]) -> tuple[str, ...]:
    """The statements of a transaction before the one for the feed."""
    return sent[:-1] if sent[-1] == "feed_steps" else sent


def _order(timer: Timer) -> tuple[datetime, str]:
    return timer.due, timer.name


def _row_of(process: Snapshot) -> tuple[Any, ...]:
    return (
        process.process_no, process.namespace, process.process_id, process.status, process.previous_status,
        process.status_changed_at, process.created_at, process.detail, process.aux_state,
        process.metadata, process.corrupted_by, process.last_event_id,
    )  # fmt: skip


def _ref(task: Task) -> TaskRef:
    return TaskRef(task.process.key[0], *task.key)


def _place(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[:3]


@pytest.mark.timeout(600)
def test_storage_against_the_oracle(dsn: str) -> None:
    """Whatever is asked of Storage, and however often, it does what the oracle does."""
    with world(dsn) as made:
        run_state_machine_as_test(
            lambda: StorageMachine(made), settings=profile(quick=150, deep=5000, steps=30)
        )
        assert made.ways.keys() >= WAYS, "some ways were not gone"
