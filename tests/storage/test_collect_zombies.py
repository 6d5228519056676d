"""collect_zombies: what a dead worker ran ends, by the namespace's policy; live work is untouched."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from progressor import metrics
from progressor.config import NamespaceOptions, RetryPolicy
from progressor.errors import StorageUnavailable
from progressor.loggers import message_of
from progressor.model import Disposition, TaskType
from progressor.storage.operations import Storage
from progressor.storage.values import LostLease, Saved, Zombie
from tests.support import (
    LONG,
    NS,
    OTHER_WORKER,
    SECOND,
    T0,
    WORKER,
    Held,
    Tables,
    break_process,
    claim_calls,
    claim_timers,
    collect as judge,
    eventually,
    evidence,
    fail,
    hint_of,
    hold,
    init,
    repair,
    request,
    resume,
    retry,
    save,
    set_timer,
    start,
    wait,
)

AGE = timedelta(seconds=30)
GRACE = timedelta(seconds=10)
DEAD = T0 + AGE + SECOND
OVERDUE = T0 + timedelta(seconds=60) + GRACE + SECOND


async def collect(storage: Storage, at: datetime = DEAD, *, limit: int = 100) -> list[Zombie]:
    return await judge(storage, at, lease_age=AGE, grace=GRACE, limit=limit)


@pytest.fixture
def known(tables: Tables) -> Tables:
    """A namespace that a worker registered, a worker whose last sign is of T0, and a collector."""
    tables.set_namespace()
    tables.set_worker()
    tables.set_collector()
    return tables


@pytest.fixture
def other(dsn: str) -> Iterator[psycopg.Connection]:
    """Somebody else's connection to the same database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


SILENT = (
    "zombie detected: worker 0000000000000001 was last seen at 2040-01-01 12:00:00.123+00:00, "
    "its lease is 30 s"
)


def zombie(
    step: Held, disposition: Disposition = Disposition.BREAK, *, reason: str = SILENT, **fields: Any
) -> Zombie:
    task = step.task
    return Zombie(
        hint_of(step.ref, None), task.process_id, task.task_type, WORKER, reason, disposition, **fields
    )


# who is a zombie


async def test_live_worker_is_untouched(storage: Storage, known: Tables) -> None:
    """While the heartbeat is young and the step in time, nothing is collected."""
    await hold(storage, init())
    before = known.everything()
    assert await collect(storage, T0 + AGE) == []
    known.set_worker(seen_at=T0 + AGE)
    assert await collect(storage, T0 + 2 * AGE) == []
    assert known.everything() == before


async def test_dead_worker(storage: Storage, known: Tables) -> None:
    """The task of a worker whose heartbeat is too old ends in error and breaks its process."""
    step = await hold(storage, init())
    assert await collect(storage) == [zombie(step)]
    row = known.process()
    assert row is not None
    assert (row["status"], row["previous_status"], row["status_changed_at"]) == (
        "error",
        "init",
        DEAD,
    )
    assert (row["detail"], row["corrupted_by"]) == (SILENT, step.task.task_id)
    task = known.task(step.task.task_id)
    assert task is not None
    assert (task["status"], task["error"], task["finished_time"]) == (
        "error",
        SILENT,
        DEAD,
    )
    assert await collect(storage) == []


async def test_missing_worker_row(storage: Storage, tables: Tables) -> None:
    """A worker that left without its row is dead when the age of a lease has passed, not before."""
    tables.set_namespace()
    tables.set_collector()
    step = await hold(storage, init())
    assert await collect(storage, T0 + AGE) == []
    reason = "zombie detected: worker 0000000000000001 is gone, for longer than a lease of 30 s"
    assert await collect(storage, DEAD) == [zombie(step, reason=reason)]


async def test_outlived_step(storage: Storage, known: Tables) -> None:
    """A task that outlived step_timeout and grace is a zombie, however alive its worker is."""
    step = await hold(storage, init())
    known.set_worker(seen_at=OVERDUE)
    assert await collect(storage, OVERDUE - 2 * SECOND) == []
    reason = "zombie detected: on worker 0000000000000001 it outlived its step_timeout of 60 s"
    assert await collect(storage, OVERDUE) == [zombie(step, reason=reason)]


async def test_step_timeout_is_the_workers(storage: Storage, known: Tables) -> None:
    """What a worker allows its steps counts, in each namespace; not what another one wrote of it."""
    known.set_namespace("shop.fast", step_timeout=3600)
    known.set_namespace(step_timeout=0.1)
    now = T0 + GRACE + SECOND
    limits = {"shop.fast": SECOND / 2, NS: 60 * SECOND}
    known.set_worker(OTHER_WORKER, seen_at=now, step_timeouts=limits)
    await hold(storage, init("slow", worker_id=OTHER_WORKER))
    await hold(storage, init("fast", namespace="shop.fast", worker_id=OTHER_WORKER))
    assert [each.process_id for each in await collect(storage, now)] == ["fast"]


async def test_a_limit_that_nobody_knows(storage: Storage, known: Tables) -> None:
    """In a namespace of which its worker said nothing a task is a zombie by the heartbeat alone."""
    known.set_namespace("shop.odd")
    known.set_worker(seen_at=T0 + LONG)
    await hold(storage, init(namespace="shop.odd"))
    assert await collect(storage, T0 + LONG) == []


async def test_the_longer_lease_counts(storage: Storage, known: Tables) -> None:
    """A collector with a shorter lease than a worker keeps leaves it its own."""
    known.set_worker(OTHER_WORKER, lease_age=3 * AGE, step_timeouts={NS: LONG})
    await hold(storage, init(worker_id=OTHER_WORKER))
    assert await collect(storage, T0 + 3 * AGE) == []
    (found,) = await collect(storage, T0 + 3 * AGE + SECOND)
    assert found.reason.endswith("its lease is 90 s")


@pytest.mark.parametrize("options", ['{"step_timeout": 86399999913600}', '{"step_timeout": "soon"}', "[]"])
async def test_options_of_one_namespace_stop_no_other(
    storage: Storage, known: Tables, options: str
) -> None:
    """Whatever stands in a namespace's row, the tasks of others are collected, and its own."""
    known.execute("INSERT INTO namespaces (name, options) VALUES ('shop.odd', %s)", options)
    for place, namespace in enumerate((NS, "shop.odd")):
        await hold(storage, init(f"p{place}", namespace=namespace))
    assert len(await collect(storage)) == 2


# what a collector must have seen


async def test_ages_count_from_when_writes_got_through(storage: Storage, known: Tables) -> None:
    """A worker has a whole lease, and a step its whole time, after nobody could write."""
    step = await hold(storage, init())
    since = T0 + 10 * AGE

    async def found_at(at: datetime) -> list[Zombie]:
        seen = evidence(at, since=since)
        return await storage.collect_zombies(seen, lease_age=AGE, grace=GRACE, now=at)

    assert await found_at(since + AGE) == []
    assert await found_at(since + AGE + SECOND) == [zombie(step)]
    slow = await hold(storage, init("slow"))
    known.set_worker(seen_at=since + LONG)
    assert await found_at(since + 60 * SECOND + GRACE) == []
    reason = "zombie detected: on worker 0000000000000001 it outlived its step_timeout of 60 s"
    assert await found_at(since + 61 * SECOND + GRACE) == [zombie(slow, reason=reason)]


async def test_less_than_a_lease_is_no_evidence(storage: Storage, known: Tables) -> None:
    """Who has seen writes get through for less than a lease judges nobody, however short a step may be."""
    known.set_worker(seen_at=T0 + LONG, step_timeouts={NS: SECOND})
    known.set_worker(OTHER_WORKER, seen_at=T0 + LONG, step_timeouts={NS: SECOND})
    await hold(storage, init(worker_id=OTHER_WORKER))
    seen = evidence(DEAD, since=DEAD - AGE + SECOND)
    assert await storage.collect_zombies(seen, lease_age=AGE, grace=GRACE, now=DEAD) == []
    seen = evidence(DEAD, since=DEAD - AGE)
    assert len(await storage.collect_zombies(seen, lease_age=AGE, grace=GRACE, now=DEAD)) == 1


async def test_a_database_without_the_last_write_is_not_judged(storage: Storage, known: Tables) -> None:
    """A standby that was promoted without the collector's last write may lack those of the workers too."""
    await hold(storage, init())
    ahead = evidence(DEAD, beats=2)
    times = {"lease_age": AGE, "grace": GRACE, "now": DEAD}
    assert await storage.collect_zombies(ahead, **times) == []
    await storage.drop_workers(evidence(DEAD + LONG, beats=2), lease_age=AGE)
    known.set_collector()
    assert len(await storage.collect_zombies(ahead, **times)) == 1


async def test_a_verdict_is_of_its_moment(storage: Storage, known: Tables) -> None:
    """A round that comes late, after an outage of years, finds no more than it would have found in time."""
    then = datetime(2020, 1, 1, tzinfo=UTC)
    known.set_worker(seen_at=then)
    await hold(storage, init(), now=then)
    for age, found in ((AGE, 0), (AGE + SECOND, 1)):
        seen = evidence(then + age, since=then - AGE)
        assert len(await storage.collect_zombies(seen, lease_age=AGE, grace=GRACE)) == found


async def test_a_worker_that_is_being_renewed_is_alive(
    storage: Storage, known: Tables, other: psycopg.Connection
) -> None:
    """A heartbeat under way, be its commit held up for ever, is a sign of life."""
    step = await hold(storage, init())
    with other.transaction(force_rollback=True):
        other.execute("UPDATE progressor.workers SET seen_at = now() WHERE worker_id = %s", (WORKER,))
        assert await collect(storage) == []
    assert await collect(storage) == [zombie(step)]


@pytest.mark.parametrize("table", ["processes", "tasks", "running", "schedule", "events"])
async def test_a_step_that_cannot_be_saved_is_not_late(
    storage: Storage, known: Tables, other: psycopg.Connection, table: str
) -> None:
    """While somebody keeps a table to himself that a step writes to, nobody is judged, and nobody waits."""
    step = await hold(storage, init())
    with other.transaction():
        other.execute(f"LOCK TABLE progressor.{table} IN SHARE MODE".encode())
        with pytest.raises(StorageUnavailable, match=rf'nobody is judged: .*\.{table}"'):
            await collect(storage)
    assert await collect(storage) == [zombie(step)]


# one that cannot be buried


def passed_over() -> float:
    return metrics.ZOMBIES_REFUSED._value.get()


async def three(storage: Storage) -> list[Held]:
    """Steps of which the second one's process has a timer and a request that waits."""
    first = await hold(storage, init("p1"))
    await start(storage, "stuck", set_timer(SECOND))
    stuck = await hold(storage, request("stuck", name="refused"))
    await wait(storage, request("stuck", name="refused"))
    return [first, stuck, await hold(storage, init("p3"))]


def survivors(tables: Tables) -> list[str]:
    """Whose steps still run."""
    found = tables.execute("SELECT process_id FROM running JOIN processes USING (process_no) ORDER BY 1")
    return [row["process_id"] for row in found]


@pytest.mark.parametrize("alone", [False, True], ids=["of several", "alone"])
@pytest.mark.parametrize(
    "rows",
    ["tasks WHERE task_id = %(task)s", "running WHERE TRUE", "schedule WHERE task_type = 'call'"],
    ids=["task", "running", "schedule"],
)
async def test_a_row_that_somebody_locks(
    storage: Storage,
    known: Tables,
    other: psycopg.Connection,
    caplog: pytest.LogCaptureFixture,
    rows: str,
    alone: bool,
) -> None:
    """It costs its own process, which is said once and buried when the lock is gone; not the others."""
    steps = await three(storage)
    if alone:
        for step in (steps[0], steps[2]):
            await save(storage, step, resume())
    stuck = steps[1].task
    with other.transaction(force_rollback=True):
        lock = f"SELECT FROM progressor.{rows} AND process_no = %(process)s FOR UPDATE"
        other.execute(lock.encode(), {"task": stuck.task_id, "process": stuck.process_no})
        before = passed_over()
        others = [] if alone else ["p1", "p3"]
        assert [each.process_id for each in await collect(storage)] == others
        assert await collect(storage) == []
        assert survivors(known) == ["stuck"]
        assert passed_over() == before + 2
    said = [each for each in caplog.records if message_of(each) == "zombie cannot be collected"]
    assert [(vars(each)["task_id"], vars(each)["process_no"]) for each in said] == [
        (stuck.task_id, stuck.process_no)
    ]
    assert [each.process_id for each in await collect(storage)] == ["stuck"]


REFUSED = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'refused' USING ERRCODE = '{state}';
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON tasks FOR EACH ROW
WHEN (OLD.name = 'refused') EXECUTE FUNCTION refuse();
"""


@pytest.mark.parametrize("state", ["XX001", "57014"], ids=["damage", "too slow"])
@pytest.mark.parametrize("policy", ["error", "retry"])
async def test_one_that_is_refused(storage: Storage, known: Tables, policy: str, state: str) -> None:
    """A row that cannot be changed, or too many that wait: the others go on, up to the limit."""
    known.set_namespace(on_zombie=policy)
    await three(storage)
    await hold(storage, init("p4"))
    known.execute(REFUSED.format(state=state).encode())
    assert [each.process_id for each in await collect(storage, limit=2)] == ["p1", "p3"]
    assert [each.process_id for each in await collect(storage, limit=2)] == ["p4"]
    assert survivors(known) == ["stuck"]


async def test_a_full_disk_is_everybodys(storage: Storage, known: Tables) -> None:
    """Workers fall silent for it, so the round fails, and nobody of it is buried."""
    await three(storage)
    known.execute(REFUSED.format(state="53100").encode())
    impatient = Storage(storage._connections, patience=timedelta())
    with pytest.raises(StorageUnavailable, match="refused"):
        await collect(impatient)
    assert survivors(known) == ["p1", "p3", "stuck"]


# the policy that breaks


async def test_error_cancels_requests(storage: Storage, known: Tables) -> None:
    """Requests that wait on the broken process are cancelled and their callers named; its timer is held."""
    await start(storage, "p1", set_timer(SECOND))
    step = await hold(storage, request(reply_to=60))
    told = await wait(storage, request(reply_to=61))
    await wait(storage, request())
    (found,) = await collect(storage)
    assert found.task == hint_of(step.ref, 60)
    assert found.cancelled == (hint_of(told),)
    assert known.outline()[1:] == [
        ("timeout", "held"),
        ("call", "error"),
        ("call", "cancelled"),
        ("call", "cancelled"),
    ]
    assert {row["error"] for row in known.tasks()[2:]} == {SILENT}
    assert await claim_timers(storage, now=DEAD) == []


async def test_error_of_a_repair(storage: Storage, known: Tables) -> None:
    """A lost repair leaves the reason why the process broke; another repair can begin."""
    broken_by = await break_process(storage)
    before = known.process()
    assert before is not None
    step = await hold(storage, repair())
    assert await collect(storage) == [zombie(step, Disposition.HOLD)]
    assert known.process() == before
    assert before["corrupted_by"] == broken_by
    await hold(storage, repair())


async def test_error_of_a_repair_leaves_the_timer_held(storage: Storage, known: Tables) -> None:
    """A lost repair does not bring the timer back."""
    await start(storage, "p1", set_timer(SECOND))
    await save(storage, await hold(storage, request()), fail())
    await hold(storage, repair())
    before = known.schedule()
    await collect(storage)
    assert known.schedule() == before
    assert before[0]["status"] == "held"


@pytest.mark.parametrize("remove", [False, True])
async def test_error_of_a_timer(storage: Storage, known: Tables, remove: bool) -> None:
    """A lost timer that breaks its process leaves the same one in its place: held, as due as it was."""
    await start(storage, "p1", set_timer(SECOND, remove=remove))
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    (found,) = await collect(storage, DEAD + SECOND)
    assert found == zombie(step)
    row = known.process()
    assert row is not None
    assert row["corrupted_by"] == step.task.task_id
    kind = step.task.task_type.value
    assert known.outline()[1:] == [(kind, "error"), (kind, "held")]
    await storage.simple_repair([repair()], now=DEAD)
    (again,) = await claim_timers(storage, now=DEAD)
    assert (again.task.task_type, again.task.attempts_count) == (step.task.task_type, 0)
    assert again.task.scheduled_time == T0 + SECOND


# the default policy


@pytest.mark.parametrize("remove", [False, True])
async def test_policy_tries_a_timer_again(storage: Storage, known: Tables, remove: bool) -> None:
    """A lost worker is one failed attempt of the timer, which waits as after a failure."""
    known.set_namespace(on_zombie="policy")
    await start(storage, "p1", set_timer(SECOND, remove=remove))
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    before = known.process()
    first = DEAD + SECOND
    assert await collect(storage, first) == [zombie(step, Disposition.RETRY)]
    assert known.process() == before
    row = known.task(step.task.task_id)
    assert row is not None
    assert (row["status"], row["error"], row["attempts_count"]) == ("waiting", SILENT, 1)
    assert (row["scheduled_time"], row["last_retry_interval"]) == (first + SECOND, SECOND)
    assert (row["zombie_count"], row["lease"], row["worker_id"]) == (1, None, None)
    assert await claim_timers(storage, now=first) == []
    (again,) = await claim_timers(storage, now=first + SECOND)
    assert (again.task.task_id, again.task.attempts_count) == (step.task.task_id, 1)
    # Another loss, the next interval.
    second = first + 2 * AGE
    assert await collect(storage, second) == [zombie(again, Disposition.RETRY)]
    (row,) = known.schedule()
    assert row["scheduled_time"] == second + 2 * SECOND
    # And then it fires.
    (last,) = await claim_timers(storage, now=second + 2 * SECOND)
    assert last.task.attempts_count == 2
    if not remove:
        await save(storage, last, resume(), now=second + 2 * SECOND)
        assert known.outline() == [("init", "finished"), ("timeout", "finished")]


async def test_policy_breaks_when_attempts_are_used_up(storage: Storage, known: Tables) -> None:
    """Losses count as attempts, beside failures: after the last the process breaks, its timer held."""
    known.set_namespace(on_zombie="policy", max_attempts=3)
    await start(storage, "p1", set_timer(SECOND))
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    await save(storage, step, retry(SECOND), now=T0 + SECOND)
    now, ends = T0 + 2 * SECOND, []
    for _ in range(2):
        await claim_timers(storage, now=now)
        now += 2 * AGE
        (found,) = await collect(storage, now)
        ends.append(found.disposition)
        now += 2 * AGE
    assert ends == [Disposition.RETRY, Disposition.BREAK]
    assert known.outline()[1:] == [("timeout", "error"), ("timeout", "held")]


async def test_policy_lets_calls_go_first(storage: Storage, known: Tables) -> None:
    """A lost timer waits behind the calls that came meanwhile, and is due later."""
    known.set_namespace(on_zombie="policy")
    await start(storage, "p1", set_timer(SECOND))
    await claim_timers(storage, now=T0 + SECOND)
    await wait(storage, request())
    await collect(storage, DEAD + SECOND)
    assert known.outline()[1:] == [("timeout", "blocked"), ("call", "waiting")]
    (call,) = await claim_calls(storage, now=DEAD + SECOND)
    assert await save(storage, call, resume(), now=DEAD + SECOND) == Saved(
        DEAD + SECOND, due=DEAD + 2 * SECOND
    )


@pytest.mark.parametrize("kind", ["init", "call", "notify", "repair"])
async def test_policy_breaks_requests(storage: Storage, known: Tables, kind: str) -> None:
    """Who asked knows better whether to ask again: a lost request breaks its process, as a failed one."""
    known.set_namespace(on_zombie="policy")
    if kind == "repair":
        await break_process(storage)
    elif kind != "init":
        await start(storage)
    step = await hold(storage, request("p1", TaskType(kind)))
    end = Disposition.HOLD if kind == "repair" else Disposition.BREAK
    assert await collect(storage) == [zombie(step, end)]
    row = known.process()
    assert row is not None
    assert row["status"] == "error"


async def test_options_as_workers_write_them(storage: Storage, known: Tables) -> None:
    """A collector reads the policy that a worker registered, its intervals included."""
    policy = RetryPolicy(initial_interval=7 * SECOND, non_retryable=(KeyError,))
    options = NamespaceOptions(retry_policy=policy).model_dump(mode="json")
    known.execute("UPDATE namespaces SET options = %s", Jsonb({**options, "step_timeout": 60, "raw": True}))
    await start(storage, "p1", set_timer(SECOND))
    await claim_timers(storage, now=T0 + SECOND)
    await collect(storage, DEAD + SECOND)
    (row,) = known.schedule()
    assert row["scheduled_time"] == DEAD + 8 * SECOND


@pytest.mark.parametrize(
    "options",
    [{}, {"on_zombie": "perhaps"}, {"retry_policy": {"max_attempts": "many"}}, {"retry_policy": 3}],
)
async def test_options_that_cannot_be_read(
    storage: Storage, known: Tables, options: dict[str, object]
) -> None:
    """A namespace that says nothing, or nothing that can be read, goes by the defaults; others as ever."""
    known.execute("UPDATE namespaces SET options = %s", Jsonb(options))
    known.set_namespace("shop.error", on_zombie="error")
    for name in (NS, "shop.error"):
        await start(storage, name, set_timer(SECOND), namespace=name)
        await storage.search("timers", name, 1, worker_id=WORKER, lease=1, now=T0 + SECOND)
    found = {each.task.namespace: each.disposition for each in await collect(storage, DEAD + SECOND)}
    assert found == {NS: Disposition.RETRY, "shop.error": Disposition.BREAK}


# the policy that retries


async def test_retry_runs_again(storage: Storage, known: Tables) -> None:
    """The task goes back to the schedule with one attempt more; the process lives on."""
    known.set_namespace(on_zombie="retry")
    await start(storage, "p1", set_timer(SECOND))
    step = await hold(storage, request(reply_to=60, args=b"1"))
    waiting = await wait(storage, request())
    before = known.process()
    expected = replace(zombie(step, Disposition.RETRY), task=hint_of(step.ref, 60))
    assert await collect(storage) == [expected]
    assert known.process() == before
    (again,) = await claim_calls(storage, worker_id=OTHER_WORKER, now=DEAD)
    assert (again.task.task_id, again.task.attempts_count) == (step.task.task_id, 1)
    assert (again.task.args, again.task.reply_to) == (b"1", 60)
    saved = await save(storage, again, resume(), now=DEAD)
    assert saved.continuation is not None
    assert saved.continuation.task_id == waiting.task_id


async def test_retry_of_a_timer_lets_calls_go_first(storage: Storage, known: Tables) -> None:
    """A lost timer goes back behind the calls that came meanwhile."""
    known.set_namespace(on_zombie="retry")
    await start(storage, "p1", set_timer(SECOND))
    await claim_timers(storage, now=T0 + SECOND)
    await wait(storage, request())
    await collect(storage, DEAD + SECOND)
    assert known.outline()[1:] == [("timeout", "blocked"), ("call", "waiting")]
    assert len(await claim_calls(storage)) == 1


@pytest.mark.parametrize("kind", ["init", "repair"])
async def test_retry_of_any_type(storage: Storage, known: Tables, kind: str) -> None:
    """Inits and repairs are retried too, in the status that their process has."""
    known.set_namespace(on_zombie="retry")
    if kind == "repair":
        await break_process(storage)
        step = await hold(storage, repair())
    else:
        step = await hold(storage, init())
    before = known.process()
    assert await collect(storage) == [zombie(step, Disposition.RETRY)]
    assert known.process() == before
    assert len(await claim_calls(storage)) == 1


async def test_retries_exhausted(storage: Storage, known: Tables) -> None:
    """A task goes back `zombie_attempts` times; then its process breaks after all."""
    known.set_namespace(on_zombie="retry", zombie_attempts=2, max_attempts=1)
    await storage.prepare_init([init(worker_id=None)], now=T0)
    ends = []
    for _ in range(3):
        await claim_calls(storage)
        (found,) = await collect(storage)
        ends.append(found.disposition)
    assert ends == [Disposition.RETRY, Disposition.RETRY, Disposition.BREAK]
    row = known.process()
    assert row is not None
    assert row["detail"] == SILENT


async def test_failures_are_no_losses(storage: Storage, known: Tables) -> None:
    """A timer that failed often goes back at once all the same: only lost workers count."""
    known.set_namespace(on_zombie="retry", zombie_attempts=1)
    await start(storage, "p1", set_timer(SECOND))
    now = T0 + SECOND
    for _ in range(3):
        (step,) = await claim_timers(storage, now=now)
        now += SECOND
        await save(storage, step, retry(SECOND), now=now)
        now += SECOND
    (step,) = await claim_timers(storage, now=now)
    assert await collect(storage, now + 2 * AGE) == [zombie(step, Disposition.RETRY)]
    (again,) = await claim_timers(storage, now=now)
    assert again.task.attempts_count == 4


# fencing and batches


@pytest.mark.parametrize("policy", ["policy", "error", "retry"])
async def test_a_zombie_that_comes_back_saves_nothing(storage: Storage, known: Tables, policy: str) -> None:
    """A worker that was taken for dead has lost its lease: its result is not written."""
    known.set_namespace(on_zombie=policy)
    step = await hold(storage, init())
    await collect(storage)
    before = known.everything()
    assert await storage.save_result([step.step(set_timer(SECOND))], now=DEAD) == [LostLease()]
    await storage.hand_back([step.task])
    assert known.everything() == before


async def test_a_batch_of_both_policies(storage: Storage, known: Tables) -> None:
    """Zombies of namespaces with different policies, among live work, are judged each by its own."""
    known.set_namespace("shop.retry", on_zombie="retry")
    known.set_worker(OTHER_WORKER, seen_at=DEAD)
    dead = await hold(storage, init("a"))
    retried = await hold(storage, init("b", namespace="shop.retry"))
    known.execute("INSERT INTO namespaces (name, options) VALUES ('shop.silent', '{}')")
    silent = await hold(storage, init("c", namespace="shop.silent"))
    alive = await hold(storage, init("d", worker_id=OTHER_WORKER))
    told = await wait(storage, request("a", reply_to=61))
    found = {each.process_id: each for each in await collect(storage)}
    assert found == {
        "a": zombie(dead, cancelled=(hint_of(told),)),
        "b": zombie(retried, Disposition.RETRY),
        "c": zombie(silent),
    }
    await save(storage, alive, resume())


async def test_limit(storage: Storage, known: Tables) -> None:
    """A collection takes at most the limit; the next one goes on."""
    for place in range(5):
        await hold(storage, init(f"p{place}"))
    assert [len(await collect(storage, limit=2)) for _ in range(4)] == [2, 2, 1, 0]


async def test_two_hundred(storage: Storage, known: Tables) -> None:
    """A worker that dies with two hundred tasks is buried in one transaction."""
    await storage.prepare_init([init(f"p{place}") for place in range(200)], now=T0)
    assert len(await collect(storage, limit=1000)) == 200
    (row,) = known.execute("SELECT count(*) AS n FROM processes WHERE status = 'error'")
    assert row["n"] == 200


async def test_worker_id_is_no_substitute_for_a_lease(storage: Storage, known: Tables) -> None:
    """A task that a live worker took over from a dead one is not collected."""
    step = await hold(storage, init())
    await storage.hand_back([step.task])
    known.set_worker(OTHER_WORKER, seen_at=DEAD)
    (again,) = await claim_calls(storage, worker_id=OTHER_WORKER, now=T0 + SECOND)
    assert await collect(storage) == []
    await save(storage, again, resume())
    assert again.task.worker_id != WORKER


async def test_a_cancelled_round_does_not_wait_for_postgresql(storage: Storage, tables: Tables) -> None:
    """A stop amid a round ends it at once, as a cancellation; what it held is rolled back and gone."""
    tables.execute("BEGIN")
    tables.execute("LOCK TABLE namespaces IN ACCESS EXCLUSIVE MODE")
    round_ = asyncio.create_task(collect(storage))
    waits = "SELECT pid FROM pg_locks WHERE relation = 'namespaces'::regclass AND NOT granted"
    await eventually(lambda: tables.execute(waits), "it waits for the table")
    round_.cancel()
    await asyncio.wait([round_], timeout=30)
    tables.execute("ROLLBACK")
    assert round_.cancelled()
    assert await collect(storage) == []
