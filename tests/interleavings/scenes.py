"""What a process is in when two operations meet on it, and the operations that may.

Rule: all ids, leases, keys and times are fixed, so that two runs that did the same leave the same rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from progressor.config import Retention
from progressor.model import Decision, Event, ProcessStatus, TaskType
from progressor.storage.admin.archiving import Archived, Batch
from progressor.storage.admin.bulks import NewBulk
from progressor.storage.admin.reencoding import Renewal, RowKey, ValueLook, ValueTable
from progressor.storage.operations import Storage
from progressor.storage.postgres.transactions import Doubtful
from progressor.storage.values import Claimed, Finished, Import, Kind, NotPrepared, TaskRef
from progressor.timers import SetTimer, keeping
from progressor.timers.recurrence import Occurrence, Recurrence
from tests.interleavings.stepping import Side
from tests.support import (
    MICROSECOND,
    NS,
    SECOND,
    T0,
    Held,
    cancel,
    collect,
    events,
    evidence,
    fail,
    fail_repair,
    fail_timer,
    fuse,
    held,
    postponed,
    prepare,
    refuse_init,
    removed,
    request,
    resume,
    retry,
    save,
    set_timer,
)
from tests.transfers import made

LATER = T0 + timedelta(hours=2)
_HOUR = timedelta(hours=1)
# When all that is broken has broken.
_BROKEN = T0 + 2 * SECOND
_CLIENT = 61
_GROUP = "acme"
_CLAIMER = 10


@dataclass(frozen=True)
class Scene:
    """The step that runs (if one does), and the task that waits first."""

    step: Held | None = None
    waiting: TaskRef | None = None
    group_no: int = -1
    ended: TaskRef | None = None
    """A call that has ended."""
    archive: list[Archived] = field(default_factory=list)
    """What walks have archived."""

    @property
    def held(self) -> Held:
        assert self.step is not None
        return self.step

    @property
    def ref(self) -> TaskRef:
        return self.waiting or TaskRef(NS, -1, -1)


Setting = Callable[[Storage], Awaitable[Scene]]


async def _ask(storage: Storage, kind: TaskType, number: int, worker: int | None = _CLAIMER) -> Any:
    asked = request(
        "p1", kind, key=f"scene-{number}", lease=number * 10, worker_id=worker, reply_to=_CLIENT
    )
    (result,) = await prepare(storage, asked)
    return result


async def _started(storage: Storage, decision: Decision) -> None:
    await save(storage, held(await _ask(storage, TaskType.INIT, 1)), decision)


async def _timer(storage: Storage) -> TaskRef:
    """The timer: found by claiming it and handing it back."""
    (found,) = await storage.search("timers", NS, 1, worker_id=_CLAIMER, lease=90, now=LATER)
    await storage.hand_back([found.task])
    return held(found).ref


async def absent(storage: Storage) -> Scene:
    """There is no process."""
    return Scene()


async def ended(storage: Storage) -> Scene:
    """It ended by a step of its own; its answers are kept."""
    await _started(storage, resume())
    await save(storage, held(await _ask(storage, TaskType.CALL, 2)), removed())
    return Scene()


async def begun_anew(storage: Storage) -> Scene:
    """It ended by a step of its own, began anew under another key, and a call runs."""
    await ended(storage)
    await save(storage, held(await _ask(storage, TaskType.INIT, 3)), resume(events=events(1)))
    return Scene(held(await _ask(storage, TaskType.CALL, 4)))


async def initial(storage: Storage) -> Scene:
    """Its init runs, and a call waits."""
    step = held(await _ask(storage, TaskType.INIT, 1))
    return Scene(step, postponed(await _ask(storage, TaskType.CALL, 2)))


async def idle(storage: Storage) -> Scene:
    """Nothing runs, and its timer will be due."""
    await _started(storage, set_timer(_HOUR, events=events(1)))
    return Scene(waiting=await _timer(storage))


async def mailbox(storage: Storage) -> Scene:
    """Nothing runs, two calls wait before its timer."""
    await _started(storage, set_timer(_HOUR, events=events(1)))
    first = postponed(await _ask(storage, TaskType.CALL, 2, None))
    await _ask(storage, TaskType.CALL, 3, None)
    return Scene(waiting=first)


async def busy(storage: Storage) -> Scene:
    """A call runs, another waits before a timer that will be due."""
    await _started(storage, set_timer(_HOUR, events=events(1)))
    step = held(await _ask(storage, TaskType.CALL, 2))
    return Scene(step, postponed(await _ask(storage, TaskType.CALL, 3)))


async def aged(storage: Storage) -> Scene:
    """As busy, with a retention for which all that has ended is old."""
    scene = await busy(storage)
    await storage.set_retention(NS, Retention(tasks=_HOUR, events=1), now=T0)
    return scene


async def unused(storage: Storage) -> Scene:
    """Nothing runs, its timer will be due, and a call has ended."""
    await _started(storage, set_timer(_HOUR, events=events(1)))
    step = held(await _ask(storage, TaskType.CALL, 2))
    await save(storage, step, resume(events=events(2)))
    return Scene(waiting=await _timer(storage), ended=TaskRef.of(step.task, step.process))


def _aged(setting: Setting, *, archive: bool = False) -> Setting:
    """A setting with a retention for which all that ends in it is old."""

    async def set_and_age(storage: Storage) -> Scene:
        scene = await setting(storage)
        await storage.set_retention(NS, Retention(tasks=_HOUR, events=_HOUR, archive=archive), now=T0)
        return scene

    return set_and_age


async def alone(storage: Storage) -> Scene:
    """A call runs, and nothing waits but a timer."""
    await _started(storage, set_timer(_HOUR))
    return Scene(held(await _ask(storage, TaskType.CALL, 2)))


async def timing(storage: Storage) -> Scene:
    """Its timer runs."""
    await _started(storage, set_timer(SECOND))
    (found,) = await storage.search("timers", NS, 1, worker_id=_CLAIMER, lease=20, now=T0 + SECOND)
    return Scene(held(found))


async def recurring(storage: Storage) -> Scene:
    """Its recurring timer runs."""
    await _started(storage, _armed(1))
    (found,) = await storage.search("timers", NS, 1, worker_id=_CLAIMER, lease=20, now=T0 + SECOND)
    return Scene(held(found))


def _armed(second: int) -> Decision:
    """The rule of the recurring timer, for its nominal time at this second."""
    occurrence = Occurrence(Recurrence(SECOND, catch_up="all"), T0 + second * SECOND)
    timer = keeping(SetTimer(at=occurrence.nominal), occurrence.as_bytes())
    return set_timer(SECOND, events=events(second))._replace(timer=timer)


async def broken(storage: Storage) -> Scene:
    """It was broken by its timer."""
    step = (await timing(storage)).held
    await save(storage, step, fail_timer(step.task), now=T0 + SECOND)
    return Scene()


async def held_back(storage: Storage) -> Scene:
    """It was broken by a call; its timer is held, and will be due."""
    await _started(storage, set_timer(_HOUR))
    timer = await _timer(storage)
    await save(storage, held(await _ask(storage, TaskType.CALL, 2)), fail())
    return Scene(waiting=timer)


async def unborn(storage: Storage) -> Scene:
    """It was broken by its init."""
    await _started(storage, fail())
    return Scene()


async def repairing_unborn(storage: Storage) -> Scene:
    """It was broken by its init, and a repair runs."""
    await unborn(storage)
    return Scene(held(await _ask(storage, TaskType.REPAIR, 3)))


async def to_begin_anew(storage: Storage) -> Scene:
    """Its init is to run anew, and a call waits behind it."""
    await unborn(storage)
    asked = request("p1", TaskType.REPAIR, key="scene-3", lease=30, worker_id=None)
    await storage.simple_repair([asked], now=_BROKEN)
    (found,) = await storage.search("calls", NS, 1, worker_id=_CLAIMER, lease=40, now=_BROKEN)
    await storage.hand_back([found.task])
    await _ask(storage, TaskType.CALL, 4)
    return Scene(waiting=held(found).ref)


async def beginning_anew(storage: Storage) -> Scene:
    """Its init runs anew, and a call waits behind it."""
    scene = await to_begin_anew(storage)
    (found,) = await storage.search("calls", NS, 1, worker_id=_CLAIMER, lease=50, now=_BROKEN)
    return Scene(held(found), scene.waiting)


async def to_repair_unborn(storage: Storage) -> Scene:
    """It was broken by its init, and a bulk is to repair it without a handler."""
    await unborn(storage)
    await _bulk(storage, simple=True)
    return Scene()


async def repairing(storage: Storage) -> Scene:
    """It was broken by its timer, and a repair runs."""
    await broken(storage)
    return Scene(held(await _ask(storage, TaskType.REPAIR, 3)))


async def still_broken(storage: Storage) -> Scene:
    """It was broken by its timer, and a repair has failed: the task that broke it is amid old ones."""
    await save(storage, (await repairing(storage)).held, fail_repair(), now=_BROKEN)
    return Scene()


async def _group(storage: Storage, limit: int = 2) -> int:
    """Make a group of this limit, by a process that has ended."""
    asked = request("p0", TaskType.INIT, key="scene-group", lease=95, worker_id=_CLAIMER)
    (begun,) = await prepare(storage, asked)
    group_no = await storage.enter_group(held(begun).task, _GROUP)
    assert group_no is not None
    await storage.remove(NS, "p0", now=T0)
    await storage.set_group_limit(NS, _GROUP, limit)
    return group_no


async def _in_group(storage: Storage, group_no: int, decision: Decision, *, name: str = "p1") -> None:
    """A process in the group, whose init has ended so."""
    asked = request(name, TaskType.INIT, key=f"begin-{name}", lease=96, worker_id=_CLAIMER)
    (begun,) = await prepare(storage, asked)
    await storage.enter_group(held(begun).task, _GROUP)
    await save(storage, await _first_in(storage, group_no), decision)


async def _first_in(storage: Storage, group_no: int) -> Held:
    about = {"groups": [group_no], "worker_id": _CLAIMER, "lease": 97, "now": T0}
    (found,) = await storage.search_groups(NS, 1, **about)
    return held(found)


async def entering(storage: Storage) -> Scene:
    """Its init is about to enter a group, and a call waits behind it."""
    group_no = await _group(storage)
    step = held(await _ask(storage, TaskType.INIT, 1))
    return Scene(step, postponed(await _ask(storage, TaskType.CALL, 2)), group_no)


async def waits_for_room(storage: Storage) -> Scene:
    """A call waits for room, which there is, before a timer that will be due; another call is behind it."""
    group_no = await _group(storage, limit=1)
    await _in_group(storage, group_no, set_timer(_HOUR, events=events(1)))
    first = postponed(await _ask(storage, TaskType.CALL, 2, None))
    await _ask(storage, TaskType.CALL, 3, None)
    return Scene(waiting=first, group_no=group_no)


async def two_wait_for_room(storage: Storage) -> Scene:
    """There is room for one of two calls of two processes."""
    group_no = await _group(storage, limit=1)
    await _in_group(storage, group_no, resume(), name="p2")
    await _in_group(storage, group_no, resume())
    first = postponed(await _ask(storage, TaskType.CALL, 2, None))
    other = request("p2", TaskType.CALL, key="scene-4", lease=40, worker_id=None)
    await prepare(storage, other, now=T0 + MICROSECOND)
    return Scene(waiting=first, group_no=group_no)


async def due_in_group(storage: Storage) -> Scene:
    """Nothing runs, and its timer will be due, and then wait for room."""
    group_no = await _group(storage)
    await _in_group(storage, group_no, set_timer(_HOUR, events=events(1)))
    return Scene(group_no=group_no)


async def runs_in_group(storage: Storage) -> Scene:
    """A call fills up its group, and another waits, before a timer that will be due."""
    group_no = await _group(storage, limit=1)
    await _in_group(storage, group_no, set_timer(_HOUR, events=events(1)))
    await _ask(storage, TaskType.CALL, 2, None)
    step = await _first_in(storage, group_no)
    return Scene(step, postponed(await _ask(storage, TaskType.CALL, 3)), group_no)


async def last_in_group(storage: Storage) -> Scene:
    """A call of another process fills up the group, and the only one that waits there is of this one."""
    group_no = await _group(storage, limit=1)
    await _in_group(storage, group_no, resume(), name="p2")
    await _in_group(storage, group_no, resume())
    await prepare(storage, request("p2", TaskType.CALL, key="scene-4", lease=40, worker_id=None))
    step = await _first_in(storage, group_no)
    return Scene(step, postponed(await _ask(storage, TaskType.CALL, 2)), group_no)


async def _bulk(storage: Storage, *, simple: bool) -> None:
    """A bulk of all that broke until now."""
    item = NewBulk(NS, None, None, simple, None, b"hash", "bulk", b"bulk", MICROSECOND)
    await storage.make_bulk(item, now=_BROKEN)


async def to_repair(storage: Storage) -> Scene:
    """It was broken by its timer, and a bulk is to repair it."""
    await broken(storage)
    await _bulk(storage, simple=False)
    return Scene()


async def to_repair_simply(storage: Storage) -> Scene:
    """The same of a bulk that needs no handler."""
    await broken(storage)
    await _bulk(storage, simple=True)
    return Scene()


async def being_repaired(storage: Storage) -> Scene:
    """A bulk is to repair it, and a repair by hand runs."""
    scene = await repairing(storage)
    await _bulk(storage, simple=False)
    return scene


async def repair_waits(storage: Storage) -> Scene:
    """The repair that a bulk has begun waits."""
    await to_repair(storage)
    await storage.run_bulk(now=_BROKEN)
    (found,) = await storage.search("calls", NS, 1, worker_id=_CLAIMER, lease=30, now=_BROKEN)
    await storage.hand_back([found.task])
    return Scene(waiting=held(found).ref)


async def repair_runs(storage: Storage) -> Scene:
    """The repair that a bulk has begun runs."""
    await to_repair(storage)
    await storage.run_bulk(now=_BROKEN)
    (found,) = await storage.search("calls", NS, 1, worker_id=_CLAIMER, lease=30, now=_BROKEN)
    return Scene(held(found))


@dataclass(frozen=True)
class Op:
    """An operation as one of two sides does it.

    `skips`: it leaves alone what others have locked. `middle`: it is two transactions, and so many steps
    are the first. `archives`: it archives all that it deletes, and the other side deletes nothing.
    """

    act: Callable[[Storage, Scene, int], Awaitable[Any]]
    skips: bool = False
    middle: int | None = None
    on_zombie: str | None = None
    archives: bool = False


def _asks(kind: TaskType, *, waits: bool = False, key: str | None = None, verb: str | None = None) -> Op:
    async def act(storage: Storage, scene: Scene, side: int) -> Any:
        asked = request(
            "p1",
            kind,
            key=key or f"side-{side}",
            lease=side * 1000,
            worker_id=None if waits else side,
            reply_to=_CLIENT,
        )
        if verb is not None:
            return (await getattr(storage, verb)([asked], now=_now(side)))[0]
        return (await prepare(storage, asked, now=_now(side)))[0]

    return Op(act)


def _saves(decision: Decision) -> Op:
    async def act(storage: Storage, scene: Scene, side: int) -> Any:
        own = decision._replace(aux_state=f"of {side}".encode() if decision.status else None)
        return (await storage.save_result([scene.held.step(own)], now=_now(side)))[0]

    return Op(act)


async def _fails(storage: Storage, scene: Scene, side: int) -> Any:
    """The last failure of what runs."""
    task = scene.held.task
    decision = fail_timer(task) if task.task_type.is_timer else fail()
    return (await storage.save_result([scene.held.step(decision)], now=_now(side)))[0]


def _now(side: int) -> Any:
    return T0 + 2 * SECOND + side * SECOND


async def _search_calls(storage: Storage, scene: Scene, side: int) -> Any:
    return await storage.search("calls", NS, 9, worker_id=side, lease=side * 1000, now=LATER)


async def _search_timers(storage: Storage, scene: Scene, side: int) -> Any:
    return await storage.search("timers", NS, 9, worker_id=side, lease=side * 1000, now=LATER)


async def _capture(storage: Storage, scene: Scene, side: int) -> Any:
    return await storage.capture_task(scene.ref, worker_id=side, lease=side * 1000, now=LATER)


async def _search_groups(storage: Storage, scene: Scene, side: int) -> Any:
    about = {"worker_id": side, "lease": side * 1000, "now": LATER}
    return await storage.search_groups(NS, 9, groups=[scene.group_no], **about)


async def _queue_timers(storage: Storage, scene: Scene, side: int) -> Any:
    return bool(await storage.queue_timers(NS, limit=9, now=LATER))


async def _enter(storage: Storage, scene: Scene, side: int) -> Any:
    return await storage.enter_group(scene.held.task, _GROUP)


async def _collect(storage: Storage, scene: Scene, side: int) -> Any:
    return await collect(storage, LATER)


async def _live(storage: Storage, scene: Scene, side: int) -> Any:
    """A start and the end of its step: two transactions, with a boundary in between."""
    asked = request("p1", TaskType.INIT, key=f"side-{side}", lease=side * 1000, worker_id=side)
    (begun,) = await storage.prepare_init([asked], now=_now(side))
    if isinstance(begun, NotPrepared):
        return begun
    await _boundary(storage)
    return (await storage.save_result([held(begun).step(resume())], now=_now(side)))[0]


async def _boundary(storage: Storage) -> None:
    if isinstance(storage._connections, Side):
        await storage._connections.boundary()


def _fuses(
    kind: TaskType,
    decision: Decision | None = None,
    *,
    goes_on: bool = False,
    key: str | None = None,
    lost: bool = False,
) -> Op:
    """A request that is run behind its lock, and ends so; with `goes_on`, later than behind it.

    What cannot be run so, or what was `lost` before its commit, is prepared: a transaction of its own. So
    is the end of what goes on, or of what ends more than its own task. The stop in the middle of either
    comes when a request that needs no other transaction has ended.
    """

    async def act(storage: Storage, scene: Scene, side: int) -> Any:
        async def run(claimed: Sequence[Claimed]) -> list[Decision | None]:
            if lost:
                raise Doubtful
            return [None if goes_on else end_of(each) for each in claimed]

        asked = request(
            "p1", kind, key=key or f"side-{side}", lease=side * 1000, worker_id=side, reply_to=_CLIENT
        )
        try:
            (outcome,) = await fuse(storage, [asked], run, now=_now(side))
        except Doubtful:
            outcome = None
        if outcome is None:
            await _boundary(storage)
            await _boundary(storage)
            return (await prepare(storage, asked, now=_now(side)))[0]
        if isinstance(outcome, Finished):
            return outcome
        await _boundary(storage)
        step = held(outcome).step(decision or resume())
        return (await storage.save_result([step], now=_now(side)))[0]

    def end_of(each: Claimed) -> Decision:
        return decision or resume(events=events(each.process.last_event_id + 1))

    return Op(act, middle=4)


async def _hand_back(storage: Storage, scene: Scene, side: int) -> Any:
    return await storage.hand_back([scene.held.task])


async def _hand_back_unsaved(storage: Storage, scene: Scene, side: int) -> Any:
    return await storage.hand_back_unsaved(scene.held.task, SECOND, "it was lost", now=_now(side))


async def _remove(storage: Storage, scene: Scene, side: int) -> Any:
    return await storage.remove(NS, "p1", now=_now(side))


async def _remove_and_start(storage: Storage, scene: Scene, side: int) -> Any:
    """The end of one life and the begin of the next: two transactions, with a boundary in between."""
    removed = await storage.remove(NS, "p1", now=_now(side))
    if not removed.existed:
        # As many stops as it takes to remove something.
        await _boundary(storage)
        await _boundary(storage)
    await _boundary(storage)
    asked = request("p1", TaskType.INIT, key=f"side-{side}", lease=side * 1000, worker_id=side)
    return [removed, *await storage.prepare_init([asked], now=_now(side))]


async def _bulk_round(storage: Storage, scene: Scene, side: int) -> Any:
    # Asked again, it is due again.
    return await storage.run_bulk(now=_now(side) if isinstance(storage._connections, Side) else LATER)


async def _stop_bulk(storage: Storage, scene: Scene, side: int) -> Any:
    (bulk,) = await storage.bulks(limit=1)
    return await storage.stop_bulk(bulk.bulk_id, now=_now(side))


async def _drop(storage: Storage, scene: Scene, side: int) -> Any:
    late = T0 + timedelta(days=2)
    await storage.drop_workers(evidence(late), lease_age=SECOND)
    return await storage.drop_leftovers(now=late)


def _fused_claim(kind: Kind) -> Callable[[Storage, Scene, int], Awaitable[Any]]:
    """A claim and the ends of its steps, in one transaction, with a boundary in between."""

    async def run(storage: Storage, scene: Scene, side: int) -> Any:
        async with storage.fused_claim(NS, kind, 9, worker_id=side, lease=side * 1000, now=LATER) as claim:
            steps = [held(each).step(resume(events=events(1))) for each in claim.held]
            return await claim.commit(steps, None)

    return run


async def _fused_claim_on(storage: Storage, scene: Scene, side: int) -> Any:
    """A claim whose steps are not done at once: each is saved later, behind its fence."""
    async with storage.fused_claim(NS, "calls", 9, worker_id=side, lease=side * 1000, now=LATER) as claim:
        await claim.commit([], None)
    await _boundary(storage)
    steps = [held(each).step(resume()) for each in claim.held]
    return await storage.save_result(steps, now=LATER) if steps else []


async def _put(storage: Storage, scene: Scene, side: int) -> Any:
    history = (Event(b"1"), Event(b"2"))
    item = Import(NS, "p1", f"put-{side}", events=history, timers=(SetTimer(after=SECOND),))
    return await storage.put(item, now=_now(side))


_DUE = timedelta(0)


async def _sweep(storage: Storage, scene: Scene, side: int) -> Any:
    await storage.begin_sweep(NS, now=LATER)
    return await storage.sweep(rate=1, now=LATER)


async def _sweep_archived(storage: Storage, scene: Scene, side: int) -> Any:
    async def keep(batch: Batch) -> None:
        scene.archive.extend(batch.records)

    await storage.begin_sweep(NS, now=LATER)
    return await storage.sweep_archived(keep, rate=1, now=LATER)


async def _redo(storage: Storage, scene: Scene, side: int) -> Any:
    """The call that has ended, again."""
    assert scene.ended is not None
    asked = request("p1", key=f"side-{side}", lease=side * 1000, worker_id=None, args=None)
    asked = asked._replace(redoes=scene.ended.key, request_hash=scene.ended.request_hash or b"")
    return (await storage.redo([asked], now=_now(side)))[0]


async def _reencode(storage: Storage, scene: Scene, side: int) -> Any:
    """The args of all tasks: read, and written with another key's prefix. Two transactions, at least."""
    look, prefix = ValueLook(head=0), b"k2:"
    found = await storage.stored_values(ValueTable.TASKS, RowKey(), {NS: prefix}, look)
    stale = [
        Renewal(each.key, NS, each.kind, each.value, prefix + each.value)
        for each in found
        if each.value is not None
    ]
    return bool(await storage.renew(ValueTable.TASKS, stale, acts={})) if stale else False


async def _import(storage: Storage, scene: Scene, side: int) -> Any:
    """A process of old rows, under this name."""
    return (await storage.import_processes([made("p1", namespace=NS, due=LATER)], now=_now(side)))[0]


OPS: dict[str, Op] = {
    "sweep": Op(_sweep, skips=True, middle=1),
    "sweep_archived": Op(_sweep_archived, skips=True, middle=1, archives=True),
    "redo": Op(_redo),
    "reencode": Op(_reencode, skips=True, middle=1),
    "import": Op(_import),
    "init": _asks(TaskType.INIT),
    "init_same_key": _asks(TaskType.INIT, key="same"),
    "init_again": _asks(TaskType.INIT, key="scene-1"),
    "init_of_now": _asks(TaskType.INIT, key="scene-3"),
    "init_and_save": Op(_live, middle=3),
    "call": _asks(TaskType.CALL),
    "call_waiting": _asks(TaskType.CALL, waits=True),
    "call_same_key": _asks(TaskType.CALL, key="same"),
    "call_again": _asks(TaskType.CALL, key="scene-2"),
    "fused_init": _fuses(TaskType.INIT),
    "fused_call": _fuses(TaskType.CALL),
    "fused_call_and_save": _fuses(TaskType.CALL, goes_on=True),
    "fused_init_again": _fuses(TaskType.INIT, key="scene-1"),
    "fused_init_of_now": _fuses(TaskType.INIT, key="scene-3"),
    "fused_init_remove": _fuses(TaskType.INIT, refuse_init()),
    "fused_same_key": _fuses(TaskType.CALL, key="same"),
    "fused_call_again": _fuses(TaskType.CALL, key="scene-2"),
    "fused_replace": _fuses(TaskType.CALL, set_timer(_HOUR, events=events(1))),
    "fused_cancel": _fuses(TaskType.CALL, cancel()),
    "fused_break": _fuses(TaskType.CALL, fail()),
    "fused_remove": _fuses(TaskType.CALL, removed()),
    "fused_lost": _fuses(TaskType.CALL, lost=True),
    "repair": _asks(TaskType.REPAIR),
    "simple_repair": _asks(TaskType.REPAIR, waits=True, verb="simple_repair"),
    # In scenes in which the init broke the process.
    "begin_anew": _asks(TaskType.REPAIR, waits=True, verb="simple_repair"),
    "search_calls": Op(_search_calls, skips=True),
    "fused_claim": Op(_fused_claim("calls"), skips=True),
    "fused_claim_timers": Op(_fused_claim("timers"), skips=True),
    "fused_claim_on": Op(_fused_claim_on, skips=True),
    "search_timers": Op(_search_timers, skips=True),
    "capture_task": Op(_capture, skips=True),
    "search_groups": Op(_search_groups, skips=True),
    "queue_timers": Op(_queue_timers, skips=True),
    "enter_group": Op(_enter),
    "hand_back": Op(_hand_back),
    "hand_back_unsaved": Op(_hand_back_unsaved),
    "zombie_policy": Op(_collect, skips=True, on_zombie="policy"),
    "zombie_error": Op(_collect, skips=True, on_zombie="error"),
    "zombie_retry": Op(_collect, skips=True, on_zombie="retry"),
    "remove": Op(_remove),
    "remove_and_start": Op(_remove_and_start, middle=4),
    "drop": Op(_drop),
    "put": Op(_put),
    "save_resume": _saves(resume(events=events(2))),
    "save_replace": _saves(set_timer(_HOUR, events=events(1))),
    "save_replace_due": _saves(set_timer(_DUE)),
    # The step of a recurring timer arms its next nominal time.
    "save_next": _saves(_armed(2)),
    "save_cancel": _saves(cancel()),
    "save_retry": _saves(retry(SECOND)),
    "save_break": Op(_fails),
    "save_anew": _saves(resume(status=ProcessStatus.INIT)),
    "save_anew_replace": _saves(set_timer(_HOUR, status=ProcessStatus.INIT)),
    "save_hold": _saves(fail_repair()),
    "save_remove": _saves(removed()),
    "save_refusal": _saves(refuse_init()),
    "bulk_round": Op(_bulk_round, skips=True),
    "stop_bulk": Op(_stop_bulk),
}

_CLAIMS = "search_calls fused_claim search_timers fused_claim_timers capture_task"
_SAVES = "save_resume save_replace save_replace_due save_cancel save_break save_remove"
_ZOMBIES = "hand_back hand_back_unsaved zombie_policy zombie_error zombie_retry remove"
# Where a pair can meet in several scenes, the first one is the one of the quick profile.
MEETINGS: dict[str, tuple[Setting, str]] = {
    "absent": (
        absent,
        (
            "init init_same_key init_and_save fused_init fused_init_remove "
            "put call fused_call repair simple_repair remove"
        ),
    ),
    "ended": (
        ended,
        (
            "init init_again fused_init fused_init_again "
            "call call_again fused_call fused_call_again repair put remove drop"
        ),
    ),
    "begun_anew": (
        begun_anew,
        (
            "init init_again init_of_now fused_init fused_init_again fused_init_of_now call call_again "
            "fused_call fused_call_again save_resume save_remove zombie_error put remove drop"
        ),
    ),
    "busy": (
        busy,
        (
            "init fused_init call call_same_key fused_call "
            f"repair simple_repair {_CLAIMS} put {_SAVES} {_ZOMBIES}"
        ),
    ),
    "aged": (
        aged,
        f"sweep call call_waiting fused_call {_CLAIMS} {_SAVES} {_ZOMBIES} remove",
    ),
    "timing": (
        timing,
        (
            "call call_waiting fused_call search_timers "
            f"save_retry save_resume save_replace_due save_break {_ZOMBIES}"
        ),
    ),
    # Saved twice, as after a lost answer, it arms one.
    "recurring": (recurring, f"save_next save_retry save_break call search_timers {_ZOMBIES}"),
    "repairing": (
        repairing,
        f"call repair simple_repair {_CLAIMS} save_hold save_resume save_replace save_cancel {_ZOMBIES}",
    ),
    "initial": (
        initial,
        (
            "init fused_init call fused_call search_calls fused_claim "
            f"put save_resume save_replace_due save_refusal save_break {_ZOMBIES}"
        ),
    ),
    "mailbox": (mailbox, f"call call_waiting fused_call fused_claim_on {_CLAIMS} remove"),
    "idle": (
        idle,
        (
            "init fused_init call call_waiting call_same_key fused_call fused_call_and_save fused_same_key "
            "fused_replace fused_cancel fused_break fused_remove fused_lost "
            f"repair {_CLAIMS} put remove"
        ),
    ),
    "alone": (
        alone,
        f"call call_waiting fused_call search_timers {_SAVES} {_ZOMBIES}",
    ),
    "broken": (
        broken,
        "init put call fused_call repair simple_repair search_calls fused_claim search_timers remove",
    ),
    "unborn": (
        unborn,
        f"begin_anew init init_again fused_init_again put call fused_call repair {_CLAIMS} remove",
    ),
    "repairing_unborn": (
        repairing_unborn,
        f"save_anew save_anew_replace init_again call fused_call repair begin_anew {_CLAIMS} {_ZOMBIES}",
    ),
    "to_begin_anew": (
        to_begin_anew,
        f"begin_anew init_again fused_init_again call fused_call repair {_CLAIMS} put remove",
    ),
    "beginning_anew": (
        beginning_anew,
        f"begin_anew init_again call fused_call repair {_CLAIMS} {_SAVES} save_refusal {_ZOMBIES}",
    ),
    "held_back": (held_back, f"call repair simple_repair {_CLAIMS} remove"),
    "to_repair": (
        to_repair,
        "bulk_round stop_bulk call put repair simple_repair search_calls remove remove_and_start",
    ),
    "to_repair_simply": (
        to_repair_simply,
        "bulk_round stop_bulk repair simple_repair search_timers remove remove_and_start",
    ),
    "to_repair_unborn": (
        to_repair_unborn,
        "bulk_round stop_bulk init_again repair begin_anew search_calls remove remove_and_start",
    ),
    "being_repaired": (
        being_repaired,
        f"bulk_round stop_bulk save_hold save_resume remove remove_and_start {_ZOMBIES}",
    ),
    "repair_runs": (
        repair_runs,
        (
            "bulk_round stop_bulk repair simple_repair "
            f"save_hold save_resume save_replace remove_and_start {_ZOMBIES}"
        ),
    ),
    "repair_waits": (repair_waits, f"bulk_round stop_bulk repair simple_repair {_CLAIMS} remove"),
    # Others would be passed by, and the second of them be claimed.
    "two_wait_for_room": (two_wait_for_room, "search_groups remove"),
    "waits_for_room": (
        waits_for_room,
        f"search_groups queue_timers call call_waiting fused_call {_CLAIMS} put repair remove",
    ),
    "due_in_group": (
        due_in_group,
        "queue_timers search_groups search_timers call call_waiting fused_call repair remove",
    ),
    "runs_in_group": (runs_in_group, f"search_groups queue_timers call {_SAVES} {_ZOMBIES}"),
    # The step of another process leaves room as this one is removed.
    "last_in_group": (
        last_in_group,
        "search_groups remove save_resume save_break save_remove hand_back zombie_retry call",
    ),
    "entering": (
        entering,
        (
            "enter_group call fused_call search_calls search_groups save_resume save_refusal save_break "
            f"{_ZOMBIES}"
        ),
    ),
    # Walks beside all that a process can meet while something of it is old.
    "aged_absent": (_aged(absent), "sweep import put init"),
    "aged_unused": (
        _aged(unused),
        (
            "sweep init init_again fused_init fused_init_again call_again fused_call_again "
            "redo reencode put import repair simple_repair queue_timers"
        ),
    ),
    "aged_broken": (_aged(still_broken), "sweep init_again call repair simple_repair remove"),
    "aged_repairing": (_aged(repairing), f"sweep save_hold save_resume save_replace {_ZOMBIES}"),
    "aged_unborn": (_aged(unborn), "sweep begin_anew init_again fused_init_again"),
    "aged_anew": (_aged(beginning_anew), "sweep save_resume save_break save_refusal"),
    "aged_to_repair": (_aged(to_repair), "sweep bulk_round stop_bulk repair"),
    "aged_to_repair_simply": (_aged(to_repair_simply), "sweep bulk_round"),
    "aged_repair_runs": (_aged(repair_runs), "sweep bulk_round save_hold save_resume"),
    "aged_ended": (_aged(ended), "sweep init init_again call_again drop"),
    "aged_begun_anew": (
        _aged(begun_anew),
        "sweep init_again init_of_now fused_init_of_now call_again fused_call_again save_remove drop",
    ),
    "aged_entering": (_aged(entering), "sweep enter_group"),
    "aged_in_group": (_aged(runs_in_group), "sweep search_groups save_resume"),
    "aged_waits_for_room": (_aged(waits_for_room), "sweep search_groups queue_timers"),
    # What is archived is gone, or not; nothing else here deletes rows.
    "archived": (
        _aged(unused, archive=True),
        "sweep_archived init_again call_again redo reencode call_waiting fused_call search_timers",
    ),
    "archived_busy": (_aged(busy, archive=True), "sweep_archived save_resume save_replace save_break"),
    "archived_broken": (_aged(still_broken, archive=True), "sweep_archived repair simple_repair"),
    "archived_to_repair": (_aged(to_repair_simply, archive=True), "sweep_archived bulk_round"),
    "archived_repairing": (_aged(repairing, archive=True), "sweep_archived save_hold save_resume"),
}
