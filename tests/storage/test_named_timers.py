"""Several timers of a process: only the earliest may be claimed, and each has its own task and tries."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from progressor.model import TaskType, TimerStatus
from progressor.storage.doctor import examine
from progressor.storage.operations import Storage
from progressor.storage.values import Import
from progressor.timers import SetTimer, UnsetTimer
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    cancel,
    change_timers,
    claim_timers,
    collect,
    fail,
    fail_timer,
    fuse,
    hold,
    init,
    refuse,
    removed,
    repair,
    request,
    resume,
    retry,
    save,
    set_timer,
    start,
    wait,
)

THREE = change_timers(
    SetTimer(after=3 * SECOND, name="c"), SetTimer(after=SECOND, name="a"), SetTimer(after=2 * SECOND)
)


def standing(tables: Tables) -> dict[str, bool]:
    """The timers in the schedule, earliest first, and whether each may be claimed."""
    rows = [row for row in tables.schedule() if row["task_type"] in ("timeout", "remove")]
    rows.sort(key=lambda row: (row["scheduled_time"], row["task_id"]))
    return {row["timer"]: row["claimable"] for row in rows}


@pytest.fixture(autouse=True)
def sound(dsn: str, storage: Storage) -> object:
    """Whatever a test does, the invariants of the tables hold after it."""
    yield
    assert [each for each in examine(dsn, now=T0).invariants if not each.holds] == []


async def test_only_the_earliest_may_be_claimed(storage: Storage, tables: Tables) -> None:
    """They fire in the order of their due times, each as a step of its own, with its name."""
    await start(storage, "p1", THREE)
    assert standing(tables) == {"a": True, "": False, "c": False}
    fired = []
    for second in range(1, 4):
        (step,) = await claim_timers(storage, now=T0 + second * SECOND)
        fired.append(step.task.name)
        await save(storage, step, resume(), now=T0 + second * SECOND)
    assert fired == ["a", None, "c"]
    assert standing(tables) == {}


async def test_all_that_are_due_go_on_in_one_slot(storage: Storage) -> None:
    """The worker that ends one goes on with the next that is due."""
    await start(storage, "p1", THREE)
    (step,) = await claim_timers(storage, now=T0 + 9 * SECOND)
    names = [step.task.name]
    while True:
        saved = await save(storage, step, resume(), now=T0 + 9 * SECOND)
        if saved.continuation is None:
            break
        step = step.next(saved, resume())
        names.append(step.task.name)
        assert [timer.status for timer in step.process.timers][:1] == [TimerStatus.RUNNING]
    assert names == ["a", None, "c"]


async def test_what_a_handler_sees(storage: Storage) -> None:
    """All timers with their names and times: blocked behind a request, running, held in a repair."""
    await start(storage, "p1", THREE)
    called = await hold(storage, request())
    assert [(timer.name, timer.due - T0, timer.status) for timer in called.process.timers] == [
        ("a", SECOND, "blocked"),
        ("", 2 * SECOND, "blocked"),
        ("c", 3 * SECOND, "blocked"),
    ]
    saved = await save(storage, called, set_timer(9 * SECOND, name="a"))
    assert saved.due == T0 + 2 * SECOND
    (fired,) = await claim_timers(storage, now=T0 + 2 * SECOND)
    assert [(timer.name, timer.status) for timer in fired.process.timers] == [
        ("", "running"),
        ("c", "blocked"),
        ("a", "blocked"),
    ]
    await save(storage, fired, fail_timer(fired.task), now=T0 + 2 * SECOND)
    mended = await hold(storage, repair())
    assert {timer.name: timer.status for timer in mended.process.timers} == dict.fromkeys(
        ("", "c", "a"), "held"
    )


@pytest.mark.parametrize("name", ["", "a", "c"])
async def test_one_is_replaced_or_unset(storage: Storage, tables: Tables, name: str) -> None:
    """The others stay as they are: same task, same time."""
    await start(storage, "p1", THREE)
    before = {row["timer"]: row["task_id"] for row in tables.schedule()}
    await save(storage, await hold(storage, request()), set_timer(10 * SECOND, name=name))
    after = {row["timer"]: row["task_id"] for row in tables.schedule()}
    assert {each for each in after if after[each] != before[each]} == {name}
    assert list(standing(tables)) == [*(each for each in ("a", "", "c") if each != name), name]
    assert list(standing(tables).values()) == [True, False, False]
    await save(storage, await hold(storage, request()), cancel(name))
    assert list(standing(tables).values()) == [True, False]


@pytest.mark.parametrize("name", ["", "a", "new"])
@pytest.mark.parametrize("after", [SECOND // 2, timedelta(hours=1)])
async def test_a_fused_call_sets_one(storage: Storage, tables: Tables, name: str, after: timedelta) -> None:
    """The earliest may be claimed, and no other, whichever that was before."""
    await start(storage, "p1", THREE)
    decision = set_timer(after, name=name)

    async def run(_claimed: object) -> list[object]:
        return [decision]

    await fuse(storage, [request()], run, now=T0)  # type: ignore[arg-type]
    rows = standing(tables)
    assert list(rows.values()) == [True] + [False] * (len(rows) - 1)
    assert (next(iter(rows)) == name) == (after < SECOND)

    async def unset(_claimed: object) -> list[object]:
        return [cancel(name)]

    await fuse(storage, [request()], unset, now=T0)  # type: ignore[arg-type]
    rows = standing(tables)
    assert name not in rows
    assert list(rows.values()) == [True] + [False] * (len(rows) - 1)


async def test_one_that_fails_keeps_no_other_from_firing(storage: Storage, tables: Tables) -> None:
    """It waits for its next try; the others fire at their times, and keep their own tries."""
    await start(storage, "p1", THREE)
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    await save(storage, step, retry(timedelta(minutes=1)), now=T0 + SECOND)
    assert standing(tables) == {"": True, "c": False, "a": False}
    again = tables.task(step.task.task_id)
    assert again is not None
    assert again["scheduled_time"] == T0 + SECOND + timedelta(minutes=1)
    for name in (None, "c"):
        (step,) = await claim_timers(storage, now=T0 + 5 * SECOND)
        assert (step.task.name, step.task.attempts_count) == (name, 0)
        await save(storage, step, resume(), now=T0 + 5 * SECOND, keeps_slot=False)
    (step,) = await claim_timers(storage, now=T0 + timedelta(minutes=2))
    assert (step.task.name, step.task.attempts_count) == ("a", 1)


async def test_set_anew_it_begins_its_tries_anew(storage: Storage) -> None:
    """The tries of the others are untouched."""
    await start(storage, "p1", THREE)
    for _ in range(2):
        (step,) = await claim_timers(storage, now=T0 + 3 * SECOND)
        await save(storage, step, retry(SECOND), now=T0 + 3 * SECOND, keeps_slot=False)
    await save(storage, await hold(storage, request()), set_timer(SECOND, name="a"), keeps_slot=False)
    tries = {}
    for _ in range(3):
        (step,) = await claim_timers(storage, now=T0 + timedelta(minutes=1))
        tries[step.task.name] = step.task.attempts_count
        await save(storage, step, resume(), now=T0 + timedelta(minutes=1), keeps_slot=False)
    assert tries == {"a": 0, None: 1, "c": 0}


@pytest.mark.parametrize("by_timer", [True, False])
@pytest.mark.parametrize("simple", [True, False])
async def test_all_survive_a_break(storage: Storage, tables: Tables, by_timer: bool, simple: bool) -> None:
    """They are held with their due times; after a repair the earliest may be claimed again."""
    await start(storage, "p1", THREE)
    if by_timer:
        (step,) = await claim_timers(storage, now=T0 + SECOND)
        await save(storage, step, fail_timer(step.task), now=T0 + SECOND)
    else:
        await save(storage, await hold(storage, request()), fail())
    assert standing(tables) == {"a": False, "": False, "c": False}
    assert await claim_timers(storage, now=T0 + timedelta(days=1)) == []
    if simple:
        await storage.simple_repair([repair()], now=T0)
    else:
        await save(storage, await hold(storage, repair()), resume(), now=T0)
    assert standing(tables) == {"a": True, "": False, "c": False}
    due = {row["timer"]: row["scheduled_time"] - T0 for row in tables.schedule()}
    assert due == {"a": SECOND, "": 2 * SECOND, "c": 3 * SECOND}


@pytest.mark.parametrize("again", [True, False])
async def test_a_timer_that_lost_its_worker(storage: Storage, tables: Tables, again: bool) -> None:
    """It comes back under its name, behind those that are due before its next try; or it is held."""
    await start(storage, "p1", THREE)
    tables.set_namespace(on_zombie="policy" if again else "error")
    tables.set_worker()
    tables.set_collector()
    await claim_timers(storage, now=T0 + SECOND)
    await collect(storage, T0 + timedelta(hours=1))
    expected = {"": True, "c": False, "a": False} if again else {"a": False, "": False, "c": False}
    assert standing(tables) == expected


async def test_a_timer_that_was_handed_back(storage: Storage, tables: Tables) -> None:
    """It is the earliest as before; a request that came meanwhile goes first."""
    await start(storage, "p1", THREE)
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    await storage.hand_back([step.task])
    assert standing(tables) == {"a": True, "": False, "c": False}
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    await wait(storage, request())
    await storage.hand_back([step.task])
    assert standing(tables) == {"a": False, "": False, "c": False}


async def test_a_call_blocks_them_and_a_refusal_brings_them_back(storage: Storage, tables: Tables) -> None:
    """A request that runs or waits comes before all of them."""
    await start(storage, "p1", THREE)
    step = await hold(storage, request())
    assert await claim_timers(storage, now=T0 + timedelta(hours=1)) == []
    await save(storage, step, refuse(), keeps_slot=False)
    assert standing(tables) == {"a": True, "": False, "c": False}


async def test_the_timer_of_the_step_is_set_anew(storage: Storage, tables: Tables) -> None:
    """A timer's step sets its own name again, beside others and alone."""
    await start(storage, "p1", THREE)
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    await save(storage, step, set_timer(SECOND, name="a"), now=T0 + SECOND)
    assert standing(tables) == {"": True, "a": False, "c": False}
    await start(storage, "p2", set_timer(SECOND, name="only"))
    found = await claim_timers(storage, now=T0 + SECOND)
    (alone,) = [each for each in found if each.task.process_id == "p2"]
    saved = await save(storage, alone, set_timer(timedelta(0), name="only"), now=T0 + SECOND)
    assert saved.continuation is not None
    assert (saved.continuation.name, saved.continuation.task_type) == ("only", TaskType.TIMEOUT)


async def test_several_changes_at_once(storage: Storage, tables: Tables) -> None:
    """Set, replaced and unset in one step; the earliest that is due goes on in the same slot."""
    await start(storage, "p1", THREE)
    changes = change_timers(
        UnsetTimer("a"),
        SetTimer(after=timedelta(0), name="d"),
        SetTimer(at=T0 + 9 * SECOND),
        UnsetTimer("none"),
    )
    saved = await save(storage, await hold(storage, request()), changes)
    assert saved.continuation is not None
    assert saved.continuation.name == "d"
    assert standing(tables) == {"c": False, "": False}
    ended = {(row["name"], row["error"]) for row in tables.tasks() if row["status"] == "cancelled"}
    assert ended == {("a", "timer unset"), (None, "timer replaced")}


async def test_a_step_that_lost_its_lease_changes_none(storage: Storage, tables: Tables) -> None:
    """The fence stands before the changes."""
    await start(storage, "p1", THREE)
    step = await hold(storage, request())
    await save(storage, step, resume())
    before = tables.everything()
    await storage.save_result([step.step(change_timers(UnsetTimer("a"), UnsetTimer("c")))], now=T0)
    assert tables.everything() == before


@pytest.mark.parametrize("broken", [False, True])
async def test_an_import_with_several(storage: Storage, tables: Tables, broken: bool) -> None:
    """The earliest may be claimed; those of a broken process are held."""
    timers = (SetTimer(after=2 * SECOND), SetTimer(after=SECOND, name="a", remove=True))
    status, detail = ("error", "broken") if broken else ("running", None)
    item = Import(NS, "p1", "put", status, detail, timers=timers)  # type: ignore[arg-type]
    await storage.put(item, now=T0)
    assert standing(tables) == {"a": not broken, "": False}


async def test_a_timer_that_removes_ends_all(storage: Storage, tables: Tables) -> None:
    """Of several timers one may remove the process; the others go with it."""
    decision = change_timers(SetTimer(after=SECOND, remove=True, name="end"), SetTimer(after=2 * SECOND))
    await start(storage, "p1", decision)
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    assert step.task.task_type is TaskType.REMOVE
    await save(storage, step, removed(), now=T0 + SECOND)
    assert (tables.process(), tables.schedule()) == (None, [])


async def test_no_two_of_one_name(storage: Storage, tables: Tables) -> None:
    """The schema holds it, whoever writes."""
    await start(storage, "p1", THREE)
    with pytest.raises(psycopg.errors.UniqueViolation):
        tables.execute(
            "INSERT INTO schedule SELECT process_no, task_id + 1000, now(), namespace_no, task_type, "
            "FALSE, timer FROM schedule WHERE timer = 'a'"
        )


async def test_init_that_sets_several(storage: Storage, tables: Tables) -> None:
    """An init is no less than a call."""
    await save(storage, await hold(storage, init()), THREE)
    assert standing(tables) == {"a": True, "": False, "c": False}


async def test_the_views_show_which_wait(storage: Storage, tables: Tables) -> None:
    """As the API does: waiting behind an earlier one, blocked by a request, held on a broken process."""

    def shown() -> set[tuple[str, str]]:
        return {
            (view, row["status"])
            for view in ("v_tasks", "v_schedule")
            for row in tables.execute(f"SELECT status FROM {view} WHERE task_type = 'timeout'")  # type: ignore[arg-type]
        }

    await start(storage, "p1", THREE)
    assert {status for _, status in shown()} == {"waiting"}
    step = await hold(storage, request())
    assert {status for _, status in shown()} == {"blocked"}
    await save(storage, step, fail())
    assert {status for _, status in shown()} == {"held"}
    names = {row["timer"] for row in tables.execute("SELECT timer FROM v_schedule")}
    assert names == {"", "a", "c"}
