"""The doctor: finds each kind of damage by the invariant that it breaks, and nothing in what is whole.

Rule: every invariant has a damage here; the damage is done behind the engine's back.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import chain
from typing import LiteralString

import psycopg
import pytest

from progressor.config import Retention
from progressor.errors import NamespaceNotFound, SchemaMismatch, StorageUnavailable
from progressor.messages.message import Message
from progressor.storage import migrations
from progressor.storage.doctor import examine
from progressor.storage.doctor.checks import CHECKS
from progressor.storage.operations import Storage
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.values import Import
from progressor.timers import SetTimer
from tests.support import (
    NS,
    SECOND,
    T0,
    Tables,
    break_process,
    events,
    fail,
    hold,
    init,
    removed,
    repair,
    request,
    resume,
    save,
    set_timer,
    start,
    wait,
)

Place = tuple[str | None, str | None]
# What is found where, after which statements.
Damage = tuple[Place, tuple[LiteralString, ...], set[str]]

OTHER = "shop.other"
NO_NAME = (None, None)
# What is found of the whole database, whatever the namespace.
GUARDS = {"schema_guards"}


def at(process_id: str, namespace: str | None = NS) -> Place:
    return namespace, process_id


def of(process_id: LiteralString) -> LiteralString:
    """The rows of the process of that name, in any table."""
    return f"process_no = (SELECT process_no FROM processes WHERE process_id = '{process_id}')"


# A bulk that has begun one repair.
BULK: LiteralString = f"""
    INSERT INTO bulks (
        created_at, until_task, namespace, simple, request_hash, idempotency_key,
        bulk_hash, pace, paced_at, next_at, still_since, looked_at, begun
    )
    VALUES (now(), 1, '{NS}', TRUE, '', 'key', '', interval '1 s', now(), now(), now(), 1, 1)
"""


def repairing(process_id: LiteralString, columns: LiteralString) -> tuple[LiteralString, ...]:
    """A bulk that repairs this process; the two columns are its repair and the request to run again."""
    looks_for: LiteralString = (
        "INSERT INTO bulk_repairs (bulk_id, process_no, task_id, redo_task_id) "
        f"SELECT bulk_id, process_no, {columns} FROM bulks, tasks WHERE {of(process_id)}"
    )
    return BULK, looks_for


# A row of a feed.
FED: LiteralString = """
    INSERT INTO feed (
        position, appended_at, namespace, kinds, process_nos, process_ids, task_ids, last_event_ids,
        event_counts
    )
    VALUES (2, now(), 'shop.other', 's', '{1}', '{one}', '{1}', '{0}', '{0}')
"""
# Times as no release writes them.
UNREADABLE: tuple[LiteralString, ...] = (
    '{"tasks": "ninety days"}',
    '{"tasks": "P"}',
    '{"tasks": "P1DT"}',
    '{"tasks": ["P90D"]}',
    '{"tasks": "P90D", "keys": 90}',
    '{"events": 0}',
    '{"events": true}',
    '{"tasks": "P90D", "archive": "s3://old"}',
    '"P90D"',
)
DAMAGES: dict[str, Damage] = {
    "a row of the feed that is lost": (
        NO_NAME,
        (FED, "UPDATE feed_head SET position = 2"),
        {"feed_dense"},
    ),
    **{
        f"a retention written by hand, {said}": (
            (NS, None),
            (
                (
                    "UPDATE namespaces SET options = jsonb_set(options, '{retention}', "
                    f"'{said}') WHERE name = '{NS}'"
                ),
            ),
            {"retention_readable"},
        )
        for said in UNREADABLE
    },
    "a walk into an archive that nobody has": (
        (NS, None),
        (
            f"""
            INSERT INTO retention (namespace_no, is_set, tasks, archive, next_at)
            SELECT namespace_no, TRUE, interval '1 day', TRUE, timestamptz '2000-01-01'
            FROM namespaces WHERE name = '{NS}'
            """,
        ),
        {"archived_walks_begin"},
    ),
    "a bulk that lost a repair": ((NS, None), (BULK,), {"bulks_add_up"}),
    "a repair of a bulk that is deleted": (
        at("put broken"),
        repairing("put broken", "4711, NULL"),
        {"bulk_repairs_have_tasks"},
    ),
    "a request that a bulk will run again, deleted": (
        at("put broken"),
        repairing("put broken", "task_id, 4711"),
        {"bulk_repairs_have_tasks"},
    ),
    "a task that broke its process, deleted": (
        at("held"),
        (f"DELETE FROM tasks WHERE {of('held')} AND status = 'error'",),
        {"broken_by_a_task"},
    ),
    "an init that no retention has deleted": (
        at("alone"),
        (f"DELETE FROM tasks WHERE {of('alone')} AND task_type = 'init'",),
        {"init_succeeded"},
    ),
    "no task that a retention has left, and it has deleted none": (
        at("sender"),
        ("DELETE FROM outbox", f"DELETE FROM tasks WHERE {of('sender')}"),
        {"init_succeeded"},
    ),
    "a task deleted within its time": (
        at("alone"),
        (
            "SELECT setval('tasks_task_id_seq', 4713)",
            "INSERT INTO task_marks VALUES (now() - interval '50 minutes', 4711), (now(), 4713)",
            "UPDATE processes SET swept_until = 4712 WHERE process_id = 'alone'",
        ),
        {"swept_is_old"},
    ),
    "a task deleted that no walk has deleted": (
        at("alone"),
        ("UPDATE processes SET swept_until = 1 WHERE process_id = 'alone'",),
        {"swept_is_old"},
    ),
    "a first event that is deleted, and not noted": (
        at("put"),
        (f"DELETE FROM events WHERE {of('put')} AND event_id = 1",),
        {"events_gapless"},
    ),
    "an event that is deleted behind the first that is left": (
        at("put"),
        (
            "UPDATE processes SET first_event_id = 2 WHERE process_id = 'put'",
            f"DELETE FROM events WHERE {of('put')} AND event_id < 3",
        ),
        {"events_gapless"},
    ),
    "a message of a task that runs": (
        at("target"),
        (
            (
                "UPDATE outbox SET process_no = r.process_no, task_id = r.task_id "
                f"FROM running AS r WHERE r.{of('busy')} AND outbox.process_id = 'target'"
            ),
        ),
        {"outbox_has_its_step"},
    ),
    "a message of no task": (
        at("target"),
        (
            "SELECT setval('tasks_task_id_seq', 4711)",
            "UPDATE outbox SET task_id = 4711 WHERE process_id = 'target'",
        ),
        {"outbox_has_its_step"},
    ),
    "two run": (
        at("busy"),
        (
            "ALTER TABLE running DROP CONSTRAINT running_pkey",
            f"INSERT INTO running SELECT * FROM running WHERE {of('busy')}",
        ),
        {"running_once", "schema_guards"},
    ),
    "a running row without its task": (
        at("busy"),
        (f"DELETE FROM tasks WHERE {of('busy')} AND status = 'running'",),
        {"running_has_its_task"},
    ),
    "another lease": (
        at("busy"),
        (f"UPDATE running SET lease = lease + 1 WHERE {of('busy')}",),
        {"running_has_its_task"},
    ),
    "a running row of no process": (
        NO_NAME,
        ("INSERT INTO running VALUES (4711, 1, 7, 1, now(), 'call')",),
        {"running_has_its_task"},
    ),
    "a running row of a removed process": (
        at("gone"),
        (
            (
                "INSERT INTO running SELECT process_no, worker_id, task_id, lease, running_time, task_type "
                "FROM tasks JOIN removed_processes USING (process_no) WHERE task_type = 'call'"
            ),
        ),
        {"running_has_its_task"},
    ),
    "a schedule row without its task": (
        at("idle"),
        (f"DELETE FROM tasks WHERE {of('idle')} AND status = 'waiting'",),
        {"schedule_has_its_task"},
    ),
    "another time": (
        at("idle"),
        (f"UPDATE schedule SET scheduled_time = now() WHERE {of('idle')}",),
        {"schedule_has_its_task"},
    ),
    "a schedule row of no process": (
        NO_NAME,
        ("INSERT INTO schedule VALUES (4711, 7, now(), 1, 'call', TRUE)",),
        {"schedule_has_its_task"},
    ),
    "a schedule row of a removed process": (
        at("gone"),
        (
            (
                "INSERT INTO schedule SELECT process_no, task_id, scheduled_time, 1, task_type, TRUE "
                "FROM tasks JOIN removed_processes USING (process_no) WHERE task_type = 'call'"
            ),
        ),
        {"schedule_has_its_task"},
    ),
    "another namespace": (
        at("idle"),
        (
            (
                "UPDATE schedule SET namespace_no = "
                f"(SELECT namespace_no FROM namespaces WHERE name = 'shop.other') WHERE {of('idle')}"
            ),
        ),
        {"schedule_of_a_namespace"},
    ),
    "a timer that runs and waits": (
        at("busy"),
        (
            f"UPDATE running SET task_type = 'timeout' WHERE {of('busy')}",
            (
                "UPDATE tasks SET task_type = 'timeout', idempotency_key = NULL "
                f"WHERE {of('busy')} AND status = 'running'"
            ),
        ),
        {"schedule_one_timer"},
    ),
    "nothing to claim": (
        at("mailbox"),
        (f"UPDATE schedule SET claimable = FALSE WHERE {of('mailbox')}",),
        {"schedule_claimable"},
    ),
    "a task that is held, and may be claimed": (
        at("mailbox"),
        (f"UPDATE schedule SET held_time = now() WHERE {of('mailbox')} AND claimable",),
        {"schedule_claimable"},
    ),
    "a task that waits in another group": (
        at("mailbox"),
        (
            (
                "UPDATE schedule SET held_time = now(), group_no = 1, claimable = FALSE "
                f"WHERE {of('mailbox')} AND claimable"
            ),
        ),
        {"schedule_claimable"},
    ),
    "a task of a group that may be claimed": (
        at("mailbox"),
        (f"UPDATE processes SET group_no = 1 WHERE {of('mailbox')}",),
        {"schedule_claimable"},
    ),
    "a step outside of its group": (
        at("busy"),
        (f"UPDATE processes SET group_no = 1 WHERE {of('busy')}",),
        {"group_cap_kept"},
    ),
    "more than the limit of a group": (
        at("busy"),
        (
            (
                "INSERT INTO groups (namespace_no, group_key, group_limit) "
                "SELECT namespace_no, 'acme', 0 FROM processes LIMIT 1"
            ),
            f"UPDATE processes SET group_no = 1 WHERE {of('busy')}",
            f"UPDATE running SET group_no = 1 WHERE {of('busy')}",
        ),
        {"group_cap_kept"},
    ),
    "a later call to claim": (
        at("mailbox"),
        (f"UPDATE schedule SET claimable = NOT claimable WHERE {of('mailbox')} AND task_type = 'call'",),
        {"schedule_claimable"},
    ),
    "a later call that is more urgent": (
        at("mailbox"),
        (
            (
                "UPDATE schedule SET order_time = scheduled_time - interval '1 minute' "
                f"WHERE {of('mailbox')} AND task_type = 'call' AND NOT claimable"
            ),
        ),
        {"schedule_in_order"},
    ),
    "a timer with a priority": (
        at("idle"),
        (f"UPDATE schedule SET order_time = scheduled_time WHERE {of('idle')}",),
        {"schedule_in_order"},
    ),
    "a timer blocked by nothing": (
        at("idle"),
        (f"UPDATE schedule SET claimable = FALSE WHERE {of('idle')}",),
        {"schedule_claimable"},
    ),
    "a timer that no call blocks": (
        at("mailbox"),
        (f"UPDATE schedule SET claimable = TRUE WHERE {of('mailbox')} AND task_type = 'timeout'",),
        {"schedule_claimable"},
    ),
    "a timer that no step blocks": (
        at("busy"),
        (f"UPDATE schedule SET claimable = TRUE WHERE {of('busy')} AND task_type = 'timeout'",),
        {"schedule_claimable"},
    ),
    "a held timer that may be claimed": (
        at("held"),
        (f"UPDATE schedule SET claimable = TRUE WHERE {of('held')}",),
        {"schedule_claimable"},
    ),
    "a timer that runs on a broken process": (
        at("alone"),
        (
            f"UPDATE running SET task_type = 'timeout' WHERE {of('alone')}",
            (
                "UPDATE tasks SET task_type = 'timeout', idempotency_key = NULL "
                f"WHERE {of('alone')} AND status = 'running'"
            ),
            (
                "UPDATE processes SET status = 'error', detail = 'no', previous_status = NULL "
                "WHERE process_id = 'alone'"
            ),
        ),
        {"broken_waits_for_repair"},
    ),
    "no timer in the place of the one that broke it": (
        at("broken"),
        (
            f"DELETE FROM schedule WHERE {of('broken')}",
            f"DELETE FROM tasks WHERE {of('broken')} AND status = 'waiting'",
        ),
        {"timer_held_in_its_place"},
    ),
    "another timer in the place of the one that broke it": (
        at("broken"),
        (
            f"UPDATE schedule SET task_type = 'remove' WHERE {of('broken')}",
            f"UPDATE tasks SET task_type = 'remove' WHERE {of('broken')} AND status = 'waiting'",
        ),
        {"timer_held_in_its_place"},
    ),
    "a timer that recurs in the place of one that does not": (
        at("broken"),
        (f"UPDATE tasks SET args = '{{}}' WHERE {of('broken')} AND status = 'waiting'",),
        {"timer_held_in_its_place"},
    ),
    "a call overtaken": (
        at("busy"),
        (
            f"UPDATE schedule SET task_id = 0 WHERE {of('busy')} AND task_type = 'call'",
            (
                "UPDATE tasks SET task_id = 0 "
                f"WHERE {of('busy')} AND task_type = 'call' AND status = 'waiting'"
            ),
        ),
        {"mailbox_order", "init_succeeded"},
    ),
    "a call overtaken by a timer": (
        at("busy"),
        (
            f"DELETE FROM schedule WHERE {of('busy')} AND task_type = 'timeout'",
            f"DELETE FROM tasks WHERE {of('busy')} AND task_type = 'timeout'",
            f"UPDATE running SET task_type = 'timeout' WHERE {of('busy')}",
            (
                "UPDATE tasks SET task_type = 'timeout', idempotency_key = NULL "
                f"WHERE {of('busy')} AND status = 'running'"
            ),
            f"UPDATE schedule SET task_id = 0 WHERE {of('busy')}",
            f"UPDATE tasks SET task_id = 0 WHERE {of('busy')} AND status = 'waiting'",
        ),
        {"mailbox_order", "init_succeeded"},
    ),
    "a call on a broken process": (
        at("mailbox"),
        (
            (
                "UPDATE processes SET status = 'error', detail = 'no', previous_status = NULL "
                "WHERE process_id = 'mailbox'"
            ),
        ),
        {"schedule_claimable"},
    ),
    "a repair on a whole process": (
        at("repaired"),
        (
            (
                "UPDATE processes SET status = 'running', detail = NULL, corrupted_by = NULL "
                "WHERE process_id = 'repaired'"
            ),
        ),
        {"broken_waits_for_repair"},
    ),
    "an init without its task": (
        at("idle"),
        ("UPDATE processes SET status = 'init' WHERE process_id = 'idle'",),
        {"init_comes_first"},
    ),
    "an init after all": (
        at("new"),
        ("UPDATE processes SET status = 'running' WHERE process_id = 'new'",),
        {"init_comes_first"},
    ),
    "running without its init": (
        at("idle"),
        (
            (
                "UPDATE tasks SET status = 'error', error = 'ValueError: no', response = NULL "
                f"WHERE {of('idle')} AND task_type = 'init'"
            ),
        ),
        # It has left events, too.
        {"init_succeeded", "events_of_a_task"},
    ),
    "an init behind a timer": (
        at("busy"),
        (
            f"UPDATE running SET task_type = 'init' WHERE {of('busy')}",
            f"UPDATE tasks SET task_type = 'init' WHERE {of('busy')} AND status = 'running'",
            "UPDATE processes SET status = 'init' WHERE process_id = 'busy'",
        ),
        {"init_comes_first"},
    ),
    "broken by nothing": (
        at("broken"),
        ("UPDATE processes SET corrupted_by = NULL WHERE process_id = 'broken'",),
        {"broken_by_a_task"},
    ),
    "broken by a task that did not fail": (
        at("broken"),
        (
            (
                "UPDATE processes SET corrupted_by = "
                f"(SELECT min(task_id) FROM tasks WHERE {of('broken')}) "
                "WHERE process_id = 'broken'"
            ),
        ),
        {"broken_by_a_task"},
    ),
    "broken by a task of another process": (
        at("broken"),
        (
            (
                "UPDATE processes SET corrupted_by = "
                "(SELECT corrupted_by FROM processes WHERE process_id = 'repaired') "
                "WHERE process_id = 'broken'"
            ),
        ),
        {"broken_by_a_task"},
    ),
    "whole, with a detail": (
        at("idle"),
        (
            "ALTER TABLE processes DROP CONSTRAINT processes_detail_check",
            "UPDATE processes SET detail = 'no' WHERE process_id = 'idle'",
        ),
        {"broken_by_a_task", "schema_guards"},
    ),
    "a process of no namespace": (
        at("alone", None),
        ("UPDATE processes SET namespace_no = 4711 WHERE process_id = 'alone'",),
        {"processes_of_a_namespace"},
    ),
    "a namespace that is gone": (
        at("elsewhere", None),
        ("DELETE FROM namespaces WHERE name = 'shop.other'",),
        {"processes_of_a_namespace"},
    ),
    "a waiting task that nobody will see": (
        at("idle"),
        (f"DELETE FROM schedule WHERE {of('idle')}",),
        {"tasks_live_somewhere"},
    ),
    "a running task that nobody runs": (
        at("alone"),
        (f"DELETE FROM running WHERE {of('alone')}",),
        {"tasks_live_somewhere"},
    ),
    "cancelled without a reason": (
        at("idle"),
        (
            (
                "UPDATE tasks SET status = 'cancelled', finished_time = now() "
                f"WHERE {of('idle')} AND status = 'finished'"
            ),
        ),
        {"tasks_end_with_an_answer", "events_of_a_task", "init_succeeded"},
    ),
    "a request without a key": (
        at("alone"),
        (f"UPDATE tasks SET idempotency_key = NULL WHERE {of('alone')}",),
        {"tasks_end_with_an_answer"},
    ),
    "an answer of a removed process with an error": (
        at("gone"),
        (
            (
                "UPDATE tasks SET error = 'no' "
                "FROM removed_processes AS r WHERE r.process_no = tasks.process_no"
            ),
        ),
        {"tasks_end_with_an_answer"},
    ),
    "final without a time": (
        at("broken"),
        (
            "ALTER TABLE tasks DROP CONSTRAINT tasks_finished_time_check",
            f"UPDATE tasks SET finished_time = NULL WHERE {of('broken')}",
        ),
        {"tasks_end_with_an_answer", "schema_guards"},
    ),
    "a process that is gone": (
        NO_NAME,
        ("DELETE FROM processes WHERE process_id = 'put broken'",),
        {"tasks_of_a_process"},
    ),
    "a removed process that is forgotten": (
        NO_NAME,
        ("DELETE FROM removed_processes",),
        {"tasks_of_a_process"},
    ),
    "an answer of a removed process that is none": (
        at("gone"),
        (
            (
                "UPDATE tasks SET status = 'running', finished_time = NULL, response = NULL "
                "FROM removed_processes AS r WHERE r.process_no = tasks.process_no AND task_type = 'call'"
            ),
        ),
        {"tasks_of_a_process"},
    ),
    "removed, and there": (
        at("idle"),
        (
            (
                "INSERT INTO removed_processes "
                f"SELECT process_no, now(), '{NS}', process_id FROM processes WHERE process_id = 'idle'"
            ),
        ),
        {"removed_are_gone"},
    ),
    "a gap": (
        at("idle"),
        (f"DELETE FROM events WHERE {of('idle')} AND event_id = 1",),
        {"events_gapless"},
    ),
    "another last_event_id": (
        at("idle"),
        ("UPDATE processes SET last_event_id = 7 WHERE process_id = 'idle'",),
        {"events_gapless"},
    ),
    "an event of no process": (
        NO_NAME,
        (
            "SELECT setval('processes_process_no_seq', 4711)",
            "INSERT INTO events VALUES (4711, 1, 7, now(), '{}', '')",
        ),
        {"events_gapless"},
    ),
    "an event of a removed process": (
        at("gone"),
        (
            (
                "INSERT INTO events SELECT process_no, 1, task_id, now(), '{}', '' "
                "FROM tasks JOIN removed_processes USING (process_no) WHERE task_type = 'call'"
            ),
        ),
        {"events_gapless"},
    ),
    "an event of no task": (
        at("idle"),
        (f"UPDATE events SET task_id = 0 WHERE {of('idle')}",),
        {"events_of_a_task"},
    ),
    "an event of another's task": (
        at("idle"),
        (
            (
                f"UPDATE events SET task_id = (SELECT min(task_id) FROM tasks WHERE {of('alone')}) "
                f"WHERE {of('idle')}"
            ),
        ),
        {"events_of_a_task"},
    ),
    "a sequence behind the events of removed processes": (
        NO_NAME,
        (
            (
                "INSERT INTO feed (appended_at, namespace, kinds, process_nos, process_ids, task_ids, "
                "last_event_ids, event_counts) "
                "VALUES (now(), 'gone', 'r', '{4711}', '{p1}', '{1}', '{0}', '{0}')"
            ),
        ),
        {"numbers_were_given"},
    ),
    "a sequence behind the processes": (
        NO_NAME,
        ("SELECT setval('processes_process_no_seq', (SELECT max(process_no) - 1 FROM processes))",),
        {"sequences_lead"},
    ),
    "no key": (
        NO_NAME,
        ("DROP INDEX schedule_one_timer",),
        {"schema_guards"},
    ),
    "a key in another spelling": (
        NO_NAME,
        (
            "DROP INDEX tasks_idempotency_key",
            "CREATE UNIQUE INDEX tasks_idempotency_key ON tasks (process_no, idempotency_key)",
        ),
        {"schema_guards"},
    ),
    "a key in another schema": (
        NO_NAME,
        (
            "DROP INDEX schedule_one_timer",
            "CREATE TABLE public.schedule (LIKE schedule)",
            "CREATE UNIQUE INDEX schedule_one_timer ON public.schedule ((process_no + 0))",
        ),
        {"schema_guards"},
    ),
}


@pytest.fixture
async def scene(dsn: str) -> str:
    """A database with processes in all that can become of them, whole."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for name in (NS, OTHER):
            Tables(connection).set_namespace(name)
    connections = SessionPool(dsn, limit=2)
    storage = Storage(connections, patience=timedelta(seconds=10))
    await start(storage, "idle", set_timer(SECOND, events=events(2)))
    await start(storage, "mailbox", set_timer(SECOND))
    await wait(storage, request("mailbox", worker_id=None))
    await wait(storage, request("mailbox", worker_id=None))
    await start(storage, "busy", set_timer(SECOND))
    await hold(storage, request("busy"))
    await wait(storage, request("busy"))
    await start(storage, "alone")
    await hold(storage, request("alone"))
    await hold(storage, init("new"))
    await break_process(storage, "broken", by_timer=True)
    await start(storage, "held", set_timer(SECOND))
    await save(storage, await hold(storage, request("held")), fail())
    await break_process(storage, "repaired")
    await hold(storage, repair("repaired"))
    await start(storage, "gone")
    await save(storage, await hold(storage, request("gone")), removed())
    await start(storage, "gone")
    await storage.put(
        Import(NS, "put", "put-1", events=events(3), timers=(SetTimer(after=SECOND),)), now=T0
    )
    await storage.put(Import(NS, "put broken", "put-2", status="error", detail="imported"), now=T0)
    message = Message(NS, "target", "post", idempotency_key="message", request_hash=b"")
    await start(storage, "sender")
    await save(storage, await hold(storage, request("sender")), resume(messages=(message,)))
    await start(storage, "elsewhere", resume(events=events(1)), namespace=OTHER)
    await connections.close()
    return dsn


def broken(dsn: str, **options: object) -> set[str]:
    """The names of the invariants that do not hold."""
    report = examine(dsn, **options)  # type: ignore[arg-type]
    return {each.name for each in report.invariants if not each.holds}


def test_whole(scene: str) -> None:
    """Nothing is found where nothing is damaged."""
    report = examine(scene)
    assert report.is_clean, report
    assert [each.name for each in report.invariants] == [check.name for check in CHECKS]


@pytest.mark.parametrize("name", DAMAGES)
def test_damage(scene: str, tables: Tables, name: str) -> None:
    """Each damage is found by the invariants that it breaks, where it is; by no other, and nowhere else."""
    place, statements, expected = DAMAGES[name]
    for statement in statements:
        tables.execute(statement)
    found = {each.name: each.findings for each in examine(scene).invariants if not each.holds}
    assert set(found) == expected
    for finding in chain.from_iterable(found[each] for each in expected - GUARDS):
        assert (finding.namespace, finding.process_id) == place
        of_no_row = expected <= {"feed_dense", "sequences_lead", "numbers_were_given"}
        assert place != NO_NAME or of_no_row or "there is no process " in finding.found
    for namespace in (NS, OTHER):
        if not tables.execute("SELECT name FROM namespaces WHERE name = %s", namespace):
            with pytest.raises(NamespaceNotFound):
                examine(scene, namespace=namespace)
            continue
        seen = expected if place[0] == namespace else expected & GUARDS
        assert broken(scene, namespace=namespace) == seen


@pytest.mark.parametrize(
    "said",
    [
        Retention(tasks=timedelta(hours=1, seconds=1.5), keys=timedelta(days=800), events=7, archive=True),
        Retention(tasks=timedelta(days=90), events=timedelta(minutes=61)),
        Retention(),
    ],
)
async def test_retentions_as_code_writes_them(dsn: str, storage: Storage, said: Retention) -> None:
    """No finding; nor is what a newer release says beside them."""
    options = {"retention": {**said.model_dump(mode="json"), "of_a_newer_release": True}}
    await storage.register_namespace(NS, options=options, schemas={})
    assert broken(dsn) == set()


async def test_an_operator_mends_a_retention(dsn: str, storage: Storage) -> None:
    """What code says counts no more where an operator has set times."""
    await storage.register_namespace(NS, options={"retention": {"tasks": "soon"}}, schemas={})
    assert broken(dsn, quick=True) == {"retention_readable"}
    await storage.set_retention(NS, Retention(tasks=timedelta(days=90)))
    assert broken(dsn, quick=True) == set()


def test_every_invariant_has_a_damage() -> None:
    """No invariant is there that nothing was ever found by."""
    by_time = {"running_of_the_living", "running_in_time"}
    found = {name for _, _, names in DAMAGES.values() for name in names}
    assert found | by_time == {check.name for check in CHECKS}


def test_findings_name_the_place(scene: str, tables: Tables) -> None:
    """A finding says where it is, and what was found; there are at most as many as were asked for."""
    tables.execute("UPDATE schedule SET claimable = FALSE")
    (found,) = [each for each in examine(scene, most=1).invariants if not each.holds]
    (finding,) = found.findings
    assert found.more
    assert (finding.namespace, finding.found) == (NS, "it is the next, but cannot be claimed")
    assert finding.process_id
    assert finding.task_id


def test_one_namespace(scene: str, tables: Tables) -> None:
    """Another namespace's damage is left out, or alone in it."""
    tables.execute(f"DELETE FROM events WHERE {of('elsewhere')}")
    assert broken(scene, namespace=OTHER) == {"events_gapless"}
    assert broken(scene, namespace=NS) == set()


def test_quick(scene: str, tables: Tables) -> None:
    """What needs all events is left out of a quick look."""
    tables.execute("DELETE FROM events")
    assert broken(scene, quick=True) == set()
    tables.execute("DELETE FROM tasks")
    assert broken(scene, quick=True) == {
        *("running_has_its_task", "schedule_has_its_task", "outbox_has_its_step"),
    }


def test_dead_worker(scene: str, tables: Tables) -> None:
    """A task of a dead worker is a finding once a collector had its time, not before."""
    late = T0 + 35 * SECOND
    times = {"lease_age": 15 * SECOND, "slack": 20 * SECOND}
    assert broken(scene, now=late, **times) == set()
    assert broken(scene, now=late + SECOND, **times) == {"running_of_the_living"}
    tables.set_worker(seen_at=T0 + 2 * SECOND)
    assert broken(scene, now=late + SECOND, **times) == set()


def test_endless_step(scene: str, tables: Tables) -> None:
    """A task that outlived its step_timeout and the grace is one too, however alive its worker is."""
    late = T0 + 60 * SECOND + 10 * SECOND + 20 * SECOND
    times = {"grace": 10 * SECOND, "slack": 20 * SECOND}
    tables.set_worker(seen_at=late)
    assert broken(scene, now=late, **times) == set()
    assert broken(scene, now=late + SECOND, **times) == {"running_in_time"}


def test_within_a_time(scene: str) -> None:
    """An examination that takes longer ends, and names what is left; nothing of that is said to hold."""
    with psycopg.connect(scene) as connection:
        connection.execute("LOCK TABLE progressor.running IN ACCESS EXCLUSIVE MODE")
        report = examine(scene, within=timedelta(milliseconds=100))
    done = [each.name for each in report.invariants]
    assert [*done, *report.left] == [check.name for check in CHECKS]
    assert "running_once" in report.left
    assert not report.is_clean
    assert examine(scene, within=timedelta(minutes=1)).is_clean


async def test_one_snapshot(scene: str) -> None:
    """What commits while the doctor looks is not seen by half: all checks see one moment."""
    connections = SessionPool(scene, limit=1)
    storage = Storage(connections, patience=timedelta(seconds=10))
    stop = asyncio.Event()

    async def work() -> None:
        place = 0
        while not stop.is_set():
            place += 1
            step = await hold(storage, init(f"w{place}"))
            await save(storage, step, set_timer(SECOND, events=events(3)))
            await storage.remove(NS, f"w{place - 1}")

    working = asyncio.create_task(work())
    reports = [await asyncio.to_thread(examine, scene) for _ in range(5)]
    stop.set()
    await working
    await connections.close()
    assert [each for report in reports for each in report.invariants if not each.holds] == []


def test_changes_nothing(scene: str, tables: Tables) -> None:
    """The transaction is read-only."""
    before = tables.everything()
    examine(scene)
    assert tables.everything() == before


def test_another_schema(empty_dsn: str) -> None:
    """The tables of that schema are looked at, and their guards, whatever stands elsewhere."""
    for schema in ("progressor", "other"):
        migrations.upgrade(empty_dsn, schema=schema)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO other.running VALUES (4711, 1, 7, 1, now(), 'call')")
        connection.execute("DROP INDEX other.schedule_one_timer")
    assert broken(empty_dsn, schema="other") == {"running_has_its_task", "schema_guards"}
    assert broken(empty_dsn) == set()


def test_without_tables(empty_dsn: str) -> None:
    """A database without the tables is no finding but an error."""
    with pytest.raises(SchemaMismatch):
        examine(empty_dsn)


def test_without_a_database() -> None:
    """Neither is a database that cannot be reached."""
    with pytest.raises(StorageUnavailable):
        examine("postgresql://nobody@127.0.0.1:1/nothing")
