"""collect_zombies: what a dead worker ran ends, by the namespace's policy; live work is untouched."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from psycopg.types.json import Jsonb

from progressor.config import NamespaceOptions, RetryPolicy
from progressor.model import TaskType
from progressor.storage.items import LostLease, Saved, Zombie
from progressor.storage.operations import Storage
from tests.support import (
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
    eventually,
    fail,
    hold,
    init,
    repair,
    request,
    retry,
    save,
    set_timer,
    start,
    unlock,
    wait,
)

AGE = timedelta(seconds=30)
GRACE = timedelta(seconds=10)
DEAD = T0 + AGE + SECOND
OVERDUE = T0 + timedelta(seconds=60) + GRACE + SECOND


async def collect(storage: Storage, now: datetime = DEAD, *, limit: int = 100) -> list[Zombie]:
    return await storage.collect_zombies(lease_age=AGE, grace=GRACE, limit=limit, now=now)


@pytest.fixture
def known(tables: Tables) -> Tables:
    """A namespace that a worker registered, and a worker whose last sign is of T0."""
    tables.set_namespace()
    tables.set_worker()
    return tables


def zombie(step: Held, verdict: str = "error") -> Zombie:
    return Zombie(step.ref, step.task.process_id, step.task.task_type, verdict)  # type: ignore[arg-type]


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
    assert (row["detail"], row["corrupted_by"]) == ("zombie detected", step.task.task_id)
    task = known.task(step.task.task_id)
    assert task is not None
    assert (task["status"], task["error"], task["finished_time"]) == (
        "error",
        "zombie detected",
        DEAD,
    )
    assert await collect(storage) == []


async def test_missing_worker_row(storage: Storage, tables: Tables) -> None:
    """A worker that left without its row is dead when the age of a lease has passed, not before."""
    tables.set_namespace()
    step = await hold(storage, init())
    assert await collect(storage, T0 + AGE) == []
    assert await collect(storage, DEAD) == [zombie(step)]


async def test_outlived_step(storage: Storage, known: Tables) -> None:
    """A task that outlived step_timeout and grace is a zombie, however alive its worker is."""
    step = await hold(storage, init())
    known.set_worker(seen_at=OVERDUE)
    assert await collect(storage, OVERDUE - 2 * SECOND) == []
    assert await collect(storage, OVERDUE) == [zombie(step)]


async def test_step_timeout_is_the_namespaces(storage: Storage, known: Tables) -> None:
    """Each namespace's own step_timeout counts."""
    known.set_namespace("shop.fast", step_timeout=0.5)
    await hold(storage, init("slow"))
    fast = await hold(storage, init("fast", namespace="shop.fast"))
    now = T0 + GRACE + SECOND
    known.set_worker(seen_at=now)
    assert await collect(storage, now) == [zombie(fast)]


async def test_a_long_chain_is_no_zombie(storage: Storage, known: Tables) -> None:
    """The age of a step counts from its own begin, not from that of its chain."""
    step = await hold(storage, init())
    decision = set_timer(timedelta(0))
    await save(storage, step, decision, now=OVERDUE - SECOND)
    known.set_worker(seen_at=OVERDUE)
    assert await collect(storage, OVERDUE) == []


async def test_a_restart_of_postgresql_is_no_death(storage: Storage, tables: Tables) -> None:
    """Nobody could renew a heartbeat while PostgreSQL was down: its age counts from the restart."""
    tables.set_namespace(step_timeout=3600)
    (begin,) = tables.execute("SELECT pg_postmaster_start_time() AS at")
    long_ago = begin["at"] - timedelta(seconds=50)
    tables.set_worker(seen_at=long_ago)
    step = await hold(storage, init(), now=long_ago)
    assert await collect(storage, begin["at"] + AGE) == []
    assert await collect(storage, begin["at"] + AGE + SECOND) == [zombie(step)]


async def test_a_step_that_waits_for_postgresql_does_not_grow_old(storage: Storage, tables: Tables) -> None:
    """Nobody could save a step while PostgreSQL was down: its time counts from the restart, too."""
    tables.set_namespace(step_timeout=3600)
    (begin,) = tables.execute("SELECT pg_postmaster_start_time() AS at")
    limit = timedelta(seconds=3600) + GRACE
    step = await hold(storage, init(), now=begin["at"] - 10 * limit)
    tables.set_worker(seen_at=begin["at"] + 10 * limit)
    assert await collect(storage, begin["at"] + limit) == []
    assert await collect(storage, begin["at"] + limit + SECOND) == [zombie(step)]


async def test_a_round_that_comes_too_late_does_not_judge(storage: Storage, known: Tables) -> None:
    """A statement that was repeated through an outage finds nothing: who asked must look again."""
    step = await hold(storage, init())
    (row,) = known.execute("SELECT clock_timestamp() AS now")
    late = {"lease_age": AGE, "grace": GRACE, "now": DEAD}
    assert await storage.collect_zombies(until=row["now"] - SECOND, **late) == []
    assert await storage.collect_zombies(until=row["now"] + 3600 * SECOND, **late) == [zombie(step)]


# the policy that breaks


async def test_error_cancels_requests(storage: Storage, known: Tables) -> None:
    """Requests that wait on the broken process are cancelled and their callers named; its timer is held."""
    await start(storage, "p1", set_timer(SECOND))
    step = await hold(storage, request(reply_to=60))
    told = await wait(storage, request(reply_to=61))
    await wait(storage, request())
    (found,) = await collect(storage)
    assert found.task == step.ref._replace(reply_to=60)
    assert found.cancelled == (told._replace(reply_to=61),)
    assert known.outline()[1:] == [
        ("timeout", "held"),
        ("call", "error"),
        ("call", "cancelled"),
        ("call", "cancelled"),
    ]
    assert {row["error"] for row in known.tasks()[2:]} == {"zombie detected"}
    assert await claim_timers(storage, now=DEAD) == []


async def test_error_of_a_repair(storage: Storage, known: Tables) -> None:
    """A lost repair leaves the reason why the process broke; another repair can begin."""
    broken_by = await break_process(storage)
    before = known.process()
    assert before is not None
    step = await hold(storage, repair())
    assert await collect(storage) == [zombie(step)]
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
    assert await collect(storage, first) == [zombie(step, "retry")]
    assert known.process() == before
    row = known.task(step.task.task_id)
    assert row is not None
    assert (row["status"], row["error"], row["attempts_count"]) == ("waiting", "zombie detected", 1)
    assert (row["scheduled_time"], row["last_retry_interval"]) == (first + SECOND, SECOND)
    assert (row["zombie_count"], row["lease"], row["worker_id"]) == (1, None, None)
    assert await claim_timers(storage, now=first) == []
    (again,) = await claim_timers(storage, now=first + SECOND)
    assert (again.task.task_id, again.task.attempts_count) == (step.task.task_id, 1)
    # Another loss, the next interval.
    second = first + 2 * AGE
    assert await collect(storage, second) == [zombie(again, "retry")]
    (row,) = known.schedule()
    assert row["scheduled_time"] == second + 2 * SECOND
    # And then it fires.
    (last,) = await claim_timers(storage, now=second + 2 * SECOND)
    assert last.task.attempts_count == 2
    if not remove:
        await save(storage, last, unlock(), now=second + 2 * SECOND)
        assert known.outline() == [("init", "finished"), ("timeout", "finished")]


async def test_policy_breaks_when_attempts_are_used_up(storage: Storage, known: Tables) -> None:
    """Losses count as attempts, beside failures: after the last the process breaks, its timer held."""
    known.set_namespace(on_zombie="policy", max_attempts=3)
    await start(storage, "p1", set_timer(SECOND))
    (step,) = await claim_timers(storage, now=T0 + SECOND)
    await save(storage, step, retry(SECOND), now=T0 + SECOND)
    now, verdicts = T0 + 2 * SECOND, []
    for _ in range(2):
        await claim_timers(storage, now=now)
        now += 2 * AGE
        (found,) = await collect(storage, now)
        verdicts.append(found.verdict)
        now += 2 * AGE
    assert verdicts == ["retry", "error"]
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
    assert await save(storage, call, unlock(), now=DEAD + SECOND) == Saved(
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
    assert await collect(storage) == [zombie(step)]
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
        await storage.search_timers(name, 1, worker_id=WORKER, lease=1, now=T0 + SECOND)
    found = {each.task.namespace: each.verdict for each in await collect(storage, DEAD + SECOND)}
    assert found == {NS: "retry", "shop.error": "error"}


# the policy that retries


async def test_retry_runs_again(storage: Storage, known: Tables) -> None:
    """The task goes back to the schedule with one attempt more; the process lives on."""
    known.set_namespace(on_zombie="retry")
    await start(storage, "p1", set_timer(SECOND))
    step = await hold(storage, request(reply_to=60, args=b"1"))
    waiting = await wait(storage, request())
    before = known.process()
    expected = Zombie(step.ref._replace(reply_to=60), "p1", TaskType.CALL, "retry")
    assert await collect(storage) == [expected]
    assert known.process() == before
    (again,) = await claim_calls(storage, worker_id=OTHER_WORKER, now=DEAD)
    assert (again.task.task_id, again.task.attempts_count) == (step.task.task_id, 1)
    assert (again.task.args, again.task.reply_to) == (b"1", 60)
    saved = await save(storage, again, unlock(), now=DEAD)
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
    assert await collect(storage) == [zombie(step, "retry")]
    assert known.process() == before
    assert len(await claim_calls(storage)) == 1


async def test_retries_exhausted(storage: Storage, known: Tables) -> None:
    """A task goes back `zombie_attempts` times; then its process breaks after all."""
    known.set_namespace(on_zombie="retry", zombie_attempts=2, max_attempts=1)
    await storage.prepare_init([init(worker_id=None)], now=T0)
    verdicts = []
    for _ in range(3):
        await claim_calls(storage)
        (found,) = await collect(storage)
        verdicts.append(found.verdict)
    assert verdicts == ["retry", "retry", "error"]
    row = known.process()
    assert row is not None
    assert row["detail"] == "zombie detected"


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
    assert await collect(storage, now + 2 * AGE) == [zombie(step, "retry")]
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
        "a": Zombie(dead.ref, "a", TaskType.INIT, "error", (told._replace(reply_to=61),)),
        "b": zombie(retried, "retry"),
        "c": zombie(silent),
    }
    await save(storage, alive, unlock())


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
    await save(storage, again, unlock())
    assert again.task.worker_id != WORKER


async def test_a_cancelled_round_does_not_wait_for_postgresql(storage: Storage, tables: Tables) -> None:
    """A stop amid a round ends it at once, as a cancellation; what it held is rolled back and gone."""
    tables.execute("BEGIN")
    tables.execute("LOCK TABLE running IN ACCESS EXCLUSIVE MODE")
    round_ = asyncio.create_task(storage.collect_zombies(lease_age=SECOND, grace=SECOND))
    waits = "SELECT pid FROM pg_locks WHERE relation = 'running'::regclass AND NOT granted"
    await eventually(lambda: tables.execute(waits), "it waits for the table")
    round_.cancel()
    await asyncio.wait([round_], timeout=30)
    tables.execute("ROLLBACK")
    assert round_.cancelled()
    assert await storage.collect_zombies(lease_age=SECOND, grace=SECOND) == []
