"""Plans: every hot statement finds its rows by their keys, whatever the tables hold.

Rule: the plan is the one of the engine's own session (its settings, its prepared statement, a generic
plan). PROGRESSOR_TEST_PLAN_ROWS says how many rows are many (20,000; a million before a release).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import md5
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import pq

from progressor.acts import AuditVerb, act_of
from progressor.archive.records import (
    EventRecord,
    MessageRecord,
    ProcessRecord,
    TaskRecord,
    WholeProcess,
)
from progressor.config import Rate, Rates, Retention
from progressor.messages.message import Message
from progressor.model import Decision, Event, Life, ProcessStatus
from progressor.storage.admin.archiving import Batch
from progressor.storage.admin.bulks import NewBulk
from progressor.storage.admin.reencoding import Renewal, RowKey, ValueLook, ValueTable
from progressor.storage.admin.subscriptions import Parked
from progressor.storage.feed.places import FeedPlace
from progressor.storage.feed.reading import FeedEntry, FeedFilter, Slice
from progressor.storage.operations import Storage
from progressor.storage.outbox import Outbox
from progressor.storage.params import rate_params
from progressor.storage.postgres.arrays import bigints, texts
from progressor.storage.postgres.pipeline import Session, _encode, numbered
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.queries.browsing import Browsing
from progressor.storage.queries.criteria import Wanted
from progressor.storage.queries.watching import WatchReads
from progressor.storage.statements import STATEMENTS, Params, feeding
from progressor.storage.steps.zombies import FROM_THE_START
from progressor.storage.values import Claimed, Import, TaskKey, TaskRef
from progressor.timers import SetTimer, UnsetTimer
from tests.support import (
    NS,
    SECOND,
    T0,
    WORKER,
    LossyConnections,
    Tables,
    break_init,
    break_process,
    change_timers,
    claim_calls,
    claim_timers,
    collect,
    events,
    evidence,
    fail,
    fuse,
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

ROWS = int(os.environ.get("PROGRESSOR_TEST_PLAN_ROWS", "20000"))
Plan = dict[str, Any]

# What the steps of a statement are to a feed: the first of them goes there.
FED: Params = {
    **{name: texts(["s"]) for name in ("feed_kind", "feed_namespace", "feed_process_id")},
    "feed_event_count": bigints([0]),
}

# What touches no table of processes.
OTHER_STATEMENTS = {
    "begin",
    "commit",
    "rollback",
    "notify",
    "keepalives",
    "planner",
    "settings",
    "health",
    "namespace",
    "namespace_names",
} | {
    *(
        "heartbeat",
        "deregister",
        "live_workers",
        "others_serving",
        "served_namespaces",
        "register_namespace",
    ),
    *("oldest_snapshot", "longest_lease", "server_version"),
    # Of what PostgreSQL counts.
    *("server_figures", "table_figures", "standby_figures", "slot_figures"),
    # Of samples alone: at most a day of each namespace.
    *("note_samples", "samples"),
    *("create_token", "find_tokens", "revoke_token", "use_token", "tokens_exist"),
    *("set_paused", "known_namespaces", "all_workers", "retire_patience", "bury_patience"),
    # See test_cost_where_many_bulks_have_ended.
    *("stale_bulks", "renew_bulks"),
    *("make_bulk", "bulk_of_key", "bulk_args", "bulks", "stop_bulk", "next_bulk", "lock_bulk", "note_bulk"),
    "running_bulks",
    # Settings of a step in the transaction of its handler: they read no table.
    *("constraints", "reset_authorization", "reset_role"),
    *("check_timeout", "step_begun", "step_guards", "step_leftovers", "step_mark", "step_reading"),
    # Nor does a bound of a walk's wait.
    "wait_briefly",
    # Locks whole tables, as every statement that writes to them does.
    "lock_saved_tables",
    "lock_processes",
    # Numbers from a sequence, and the begin of a transaction that only reads.
    *("draw_tasks", "begin_snapshot"),
    # Of groups alone.
    "import_groups",
    # Of walks alone; estimates read a sample of the pages.
    *(
        "mark_tasks",
        "enrol_namespaces",
        "lock_sweep",
        "lock_walk",
        "note_sweep",
        "next_sweep",
        "begin_sweep",
    ),
    *("retention", "set_retention", "sample_pages", "sample_tasks", "sample_events"),
    # Of groups alone.
    *("lock_groups", "make_groups", "set_group_limit"),
    # Of rates alone.
    *("make_rate", "lock_rate", "rests"),
    # Of the audit alone.
    *("audit", "audit_of_process", "note_acts"),
    # Of namespaces.
    "fed_namespaces",
    "catalog",
    # The highest numbers, at the ends of indexes; and all numbers, once after a copy without sequences.
    *("draws_numbers", "numbers_behind", "lift_sequences"),
}
BIG = {
    *("processes", "tasks", "events", "schedule", "running", "removed_processes", "kept_answers"),
    *("outbox", "feed", "feed_leftovers", "parked"),
    *("subscriptions", "subscription_slices", "subscription_readers"),
}
# What finds the rows of one process, by its number or by its name, and no more of them than are wanted.
KEYS = {
    "processes_pkey": ("process_no =",),
    "processes_name": ("namespace_no =", "process_id ="),
    # A statement first looks whether there is any.
    "removed_processes_by_name": ("namespace =", "process_id ="),
    "removed_processes_pkey": ("process_no =",),
    # Of the removed ones the few large ones.
    "removed_processes_with_events": (),
    "removed_processes_with_requests": (),
    "kept_answers_by_key": ("namespace =", "process_id =", "idempotency_key ="),
    # All tasks have their numbers from one sequence.
    "kept_answers_pkey": ("task_id =",),
    "tasks_pkey": ("process_no =", "task_id ="),
    "events_pkey": ("process_no =", "event_id ="),
    "tasks_idempotency_key": ("(process_no + 0) =", "idempotency_key ="),
    "running_pkey": ("process_no =",),
    "schedule_pkey": ("process_no =",),
    "schedule_one_timer": ("(process_no + 0) =",),
    # The messages of one sender that are not delivered yet.
    "outbox_pkey": ("process_no =",),
    "outbox_line": ("(process_no + 0) =",),
    "feed_pkey": ("feed_id =",),
    "feed_leftovers_pkey": ("process_no =",),
    # Of the feed what has no position yet, and the rows of given ones.
    "feed_unnumbered": (),
    "feed_position": ('"position" = ANY',),
    "subscriptions_pkey": ("name =",),
    "subscription_slices_pkey": ("name =", "slice ="),
    "parked_pkey": ("parked_no =",),
    "parked_of_process": ("name =", "namespace =", "process_id ="),
    # Of a slice what an operator has asked for, and no more.
    "parked_acted_on": ("name =", "slice ="),
}
# Scans that are not by such a key, for a reason.
OTHERS = {
    # The order of waiting, of what may be claimed only.
    ("search_calls", "schedule"): "namespace_no",
    ("search_served_calls", "schedule"): "namespace_no",
    ("search_timers", "schedule"): "scheduled_time",
    ("search_served_timers", "schedule"): "scheduled_time",
    ("ripen", "schedule"): "held_time",
    ("holds", "schedule"): "namespace_no",
    ("queue_timers", "schedule"): "scheduled_time",
    # The first task of each group that waits for room; of those with room as many as there is room for.
    ("groups_with_room", "schedule"): "group_no >",
    ("room_in_groups", "schedule"): "group_no =",
    ("search_groups", "schedule"): "group_no =",
    ("take_groups", "schedule"): "group_no =",
    # As many rows as the limits of groups are.
    ("groups_with_room", "running"): "group_no =",
    ("room_in_groups", "running"): "group_no =",
    ("search_groups", "running"): "group_no =",
    ("take_groups", "running"): "group_no =",
    ("backlog", "running"): "group_no =",
    ("groups", "running"): "group_no =",
    ("groups", "schedule"): "group_no =",
    ("due_calls", "schedule"): "namespace_no",
    ("due_timers", "schedule"): "scheduled_time",
    ("backlog", "schedule"): "namespace_no",
    ("waiting", "schedule"): "namespace_no",
    ("next_timers", "schedule"): "namespace_no",
    # Of a namespace: whether it has any, and up to a bound how many.
    ("left_in_namespace", "processes"): "namespace_no",
    ("retire", "processes"): "namespace_no",
    # Up to a bound, each in a range of an index.
    ("namespace_figures", "processes"): "namespace_no",
    ("namespace_figures", "schedule"): "namespace_no",
    ("broken_processes", "processes"): "namespace_no",
    ("failed_timers", "schedule"): "namespace_no",
    # All that a process has, or had.
    ("remove", "tasks"): "process_no",
    ("remove", "events"): "process_no =",
    ("drop_rows", "tasks"): "process_no =",
    ("drop_rows", "events"): "process_no =",
    ("drop_removed", "tasks"): "process_no =",
    ("drop_removed", "events"): "process_no =",
    ("drop_rows", "removed_processes"): "kept_until",
    ("drop_removed", "removed_processes"): "kept_until",
    # A page of processes; of each what may be old, up to a bound.
    ("look_sweep", "processes"): "ROW(",
    ("look_tasks", "tasks"): "process_no =",
    ("look_events", "events"): "process_no =",
    ("sweep_tasks", "tasks"): "process_no =",
    ("read_tasks", "tasks"): "process_no =",
    ("read_events", "events"): "process_no =",
    ("sweep_events", "events"): "process_no =",
    # All of a process, or as many as count.
    ("whole_sizes", "tasks"): "process_no =",
    ("whole_sizes", "events"): "process_no =",
    ("whole_tasks", "tasks"): "process_no =",
    ("whole_events", "events"): "process_no =",
    ("messages_of", "outbox"): "(process_no + 0) =",
    # A page of all, in the order of their keys.
    ("stale_states", "processes"): "process_no >",
    ("stale_tasks", "tasks"): "ROW(",
    ("stale_events", "events"): "ROW(",
    ("stale_messages", "outbox"): "ROW(",
    ("renew_events", "events"): "event_id = i.id",
    # The first of a process, which is its init.
    ("settle_bulk", "tasks"): "process_no =",
    # The youngest tasks of a process, up to one that ran and mended it; the next one behind a task.
    ("broken_requests", "tasks"): "process_no =",
    ("note_redos", "tasks"): "process_no =",
    # A page of the broken ones.
    ("stranded", "processes"): "ROW(",
    ("look_bulk", "processes"): "ROW(",
    ("broken_groups", "processes"): "ROW(",
    ("broken_groups_newest", "processes"): "ROW(",
    # Up to a bound, behind a place in an order.
    ("browse_created", "processes"): "ROW(",
    ("browse_broken", "processes"): "ROW(",
    ("browse_due", "schedule"): "ROW(",
    # The last tasks of a process.
    ("mailboxes", "tasks"): "process_no =",
    # As many rows as all workers have slots: by a repeated claim, once per collection, and once a minute.
    ("waiting", "running"): None,
    ("running_steps", "running"): None,
    ("claimed", "running"): None,
    ("claimed_keys", "running"): None,
    ("running_here", "running"): None,
    ("drop_workers", "running"): None,
    ("find_zombies", "running"): None,
    # Those that are due, in their order.
    ("take_messages", "outbox"): "due <=",
    ("next_message", "outbox"): "due <=",
    # Up to a bound, in the order in which they are due.
    ("waiting_messages", "outbox"): "",
    # Whether there is any.
    ("next_timers", "outbox"): "",
    # A window, and the events of each item in it; the oldest ones, up to a bound.
    ("read_feed", "feed"): '"position" <=',
    ("read_feed", "events"): "event_id =",
    ("drop_feed", "feed"): '"position" <',
    ("drop_fed", "feed_leftovers"): "kept_until <",
    ("drop_fed", "events"): "process_no =",
    # As many processes as a read may look at, in their order, and of each the events that it has room for.
    ("walk_feed", "processes"): "process_no >=",
    ("walk_feed", "events"): "event_id <=",
    # One row at a time, and some before the last; the first one behind a place.
    ("feed_place_at", "feed"): '"position" ',
    ("known_subscriptions", "feed"): '"position" >',
    # All subscriptions, and what there is of each: up to 64 slices, live readers, what is parked.
    ("known_subscriptions", "subscriptions"): None,
    ("known_subscriptions", "subscription_slices"): "name =",
    ("known_subscriptions", "subscription_readers"): "name =",
    ("known_subscriptions", "parked"): "name =",
    ("hold_slices", "subscription_slices"): "name =",
    ("hold_slices", "subscription_readers"): "name =",
    ("free_slices", "subscription_slices"): "name =",
    ("forget_reader", "subscription_readers"): "name =",
    ("move_subscription", "subscription_slices"): "name =",
    ("park_failing", "subscription_slices"): "name =",
    ("drop_subscription", "subscription_slices"): "name =",
    ("drop_subscription", "subscription_readers"): "name =",
    # Of each entry that an operator wants.
    ("acted_on", "events"): "event_id =",
    # A page of all, in their order.
    ("parked_entries", "parked"): "parked_no >",
    # All of a slice, once it is taken; all of a subscription, by an operator.
    ("parked_processes", "parked"): "name =",
    ("act_on_parked", "parked"): "name =",
    ("drop_parked", "parked"): "name =",
    # The next ones of a process; the one before them is by its key.
    ("watched_events", "events"): "event_id >",
}

# By a rate they read what they read without one; so do steps for a feed.
OTHERS |= {
    (variant, table): condition
    for (name, table), condition in OTHERS.items()
    for variant in (f"{name}_rated", feeding(name))
    if variant in STATEMENTS
}

# And by this index alone: others have the same column, and all rows that are not wanted.
ORDERS = {
    ("namespace_figures", "processes"): {"processes_broken", "processes_by_creation"},
    ("broken_processes", "processes"): {"processes_broken"},
    ("look_bulk", "processes"): {"processes_broken"},
    ("stranded", "processes"): {"processes_broken"},
    ("broken_groups", "processes"): {"processes_broken"},
    ("broken_groups_newest", "processes"): {"processes_broken"},
    ("browse_created", "processes"): {"processes_by_creation"},
    ("browse_broken", "processes"): {"processes_broken"},
    ("browse_due", "schedule"): {"schedule_timers"},
    ("namespace_figures", "schedule"): {"schedule_timers"},
    ("waiting", "schedule"): {"schedule_calls", "schedule_held"},
    ("failed_timers", "schedule"): {"schedule_timers"},
    ("take_messages", "outbox"): {"outbox_due"},
    ("next_message", "outbox"): {"outbox_due"},
    ("waiting_messages", "outbox"): {"outbox_due"},
    ("next_timers", "outbox"): {"outbox_due"},
    ("read_feed", "feed"): {"feed_position"},
    ("drop_feed", "feed"): {"feed_position"},
    ("feed_place_at", "feed"): {"feed_position"},
    ("known_subscriptions", "feed"): {"feed_position"},
    ("walk_feed", "processes"): {"processes_pkey"},
    ("walk_feed", "events"): {"events_pkey"},
}

_MANY: LiteralString = """
INSERT INTO namespaces (name, options) VALUES (%(namespace)s, '{}');

INSERT INTO processes (
    process_no, namespace_no, process_id, status, status_changed_at, created_at, last_event_id
)
OVERRIDING SYSTEM VALUE
SELECT n, namespace_no, 'many-' || n, 'running', %(now)s, %(now)s, 1
FROM generate_series(1, %(rows)s) AS n, namespaces;

INSERT INTO events (process_no, event_id, task_id, timestamp, payload)
SELECT n, 1, n, %(now)s, 'payload' FROM generate_series(1, %(rows)s) AS n;

-- Of four processes one has a call and a blocked timer, one a due timer, two a later one.
INSERT INTO tasks (
    process_no, task_id, task_type, status, scheduled_time, finished_time, idempotency_key
)
SELECT
    n, 10 * n, 'init'::task_type, 'finished'::task_status, %(now)s, %(now)s, 'key-' || n
FROM generate_series(1, %(rows)s) AS n
UNION ALL
SELECT n, 10 * n + 1, 'timeout', 'waiting', %(now)s + (n %% 4 - 1) * interval '1 day', NULL, NULL
FROM generate_series(1, %(rows)s) AS n
UNION ALL
SELECT n, 10 * n + 2, 'call', 'waiting', %(now)s, NULL, NULL
FROM generate_series(4, %(rows)s, 4) AS n;

INSERT INTO schedule (process_no, task_id, namespace_no, task_type, scheduled_time, claimable)
SELECT
    process_no, task_id, namespace_no, task_type, scheduled_time,
    task_type = 'call' OR task_id %% 40 <> 1
FROM tasks, namespaces WHERE status = 'waiting';

-- Of ten processes one has sent a message.
INSERT INTO outbox (
    process_no, task_id, created_at, due, n, task_type, namespace, process_id, idempotency_key,
    request_hash
)
SELECT
    n, 10 * n, %(now)s, %(now)s + (n %% 4 - 1) * interval '1 day', 0, 'notify', %(namespace)s,
    'many-' || n + 1, 'message-' || n, ''
FROM generate_series(10, %(rows)s, 10) AS n;

-- Of the rows of the feed the last have no position.
INSERT INTO feed (
    position, appended_at, namespace, kinds, process_nos, process_ids, task_ids, last_event_ids,
    event_counts
)
SELECT
    CASE WHEN n < %(rows)s - 10 THEN n END, %(now)s, %(namespace)s, 's', ARRAY[n], ARRAY['many-' || n],
    ARRAY[10 * n], ARRAY[1], ARRAY[1]
FROM generate_series(1, %(rows)s) AS n;

INSERT INTO feed_leftovers (process_no, kept_until)
SELECT n, %(now)s + (n %% 4 - 1) * interval '1 day' FROM generate_series(1, %(rows)s) AS n;

-- Of each process an entry is parked; an operator wants one in a thousand.
INSERT INTO subscriptions (name, slices) SELECT 's' || n, 4 FROM generate_series(1, 9) AS n;
INSERT INTO subscription_slices (name, slice, position, item, n, mark, epoch)
SELECT 's' || n, slice, 0, 0, 0, 0, 0 FROM generate_series(1, 9) AS n, generate_series(0, 3) AS slice;
INSERT INTO parked (
    name, slice, process_no, namespace, process_id, kind, n, timestamp, position, attempts, action
)
SELECT
    's' || 1 + n %% 2, n %% 4, n, %(namespace)s, 'many-' || n, 'e', 1, %(now)s, n, 1,
    CASE n %% 1000 WHEN 0 THEN 'r' END
FROM generate_series(1, %(rows)s) AS n;

SELECT setval('tasks_task_id_seq', 100 * %(rows)s), setval('processes_process_no_seq', %(rows)s);
"""

_ONE: LiteralString = """
INSERT INTO namespaces (name, options) VALUES (%(namespace)s, '{}');

INSERT INTO processes (
    process_no, namespace_no, process_id, status, status_changed_at, created_at, last_event_id
)
OVERRIDING SYSTEM VALUE
SELECT 1, namespace_no, 'one', 'running', %(now)s, %(now)s, %(rows)s FROM namespaces;

INSERT INTO events (process_no, event_id, task_id, timestamp, payload)
SELECT 1, n, n, %(now)s, 'payload' FROM generate_series(1, %(rows)s) AS n;

INSERT INTO tasks (
    process_no, task_id, task_type, status, scheduled_time, finished_time, idempotency_key
)
SELECT
    1, n,
    CASE n WHEN 1 THEN 'timeout' ELSE 'call' END::task_type,
    CASE n %% 2 WHEN 0 THEN 'finished' ELSE 'waiting' END::task_status,
    %(now)s, CASE n %% 2 WHEN 0 THEN %(now)s END, CASE WHEN n > 1 THEN 'key-' || n END
FROM generate_series(1, %(rows)s) AS n;

INSERT INTO schedule (process_no, task_id, namespace_no, task_type, scheduled_time, claimable)
SELECT process_no, task_id, namespace_no, task_type, scheduled_time, task_id = 3
FROM tasks, namespaces WHERE status = 'waiting';

INSERT INTO outbox (
    process_no, task_id, created_at, due, n, task_type, namespace, process_id, idempotency_key,
    request_hash
)
SELECT 1, n, %(now)s, %(now)s, 0, 'notify', %(namespace)s, 'one', 'message-' || n, ''
FROM generate_series(2, %(rows)s, 2) AS n;

INSERT INTO feed (
    position, appended_at, namespace, kinds, process_nos, process_ids, task_ids, last_event_ids,
    event_counts
)
SELECT n, %(now)s, %(namespace)s, 's', ARRAY[1], ARRAY['one'], ARRAY[n], ARRAY[n], ARRAY[1]
FROM generate_series(1, %(rows)s) AS n;

INSERT INTO subscriptions (name, slices) VALUES ('s1', 1);
INSERT INTO subscription_slices (name, slice, position, item, n, mark, epoch)
VALUES ('s1', 0, 0, 0, 0, 0, 0);
INSERT INTO parked (
    name, slice, process_no, namespace, process_id, kind, n, timestamp, position, attempts, action
)
SELECT 's1', 0, 1, %(namespace)s, 'one', 'e', n, %(now)s, n, 1, 'r' FROM generate_series(1, %(rows)s) AS n;

SELECT setval('tasks_task_id_seq', 100 * %(rows)s), setval('processes_process_no_seq', %(rows)s);
"""


RATES = Rates(all=Rate(5, per=SECOND), group=Rate(3, per=SECOND))
ADMITTED = {name: str(value) for name, value in rate_params(RATES).items()}


def fill(tables: Tables, rows: LiteralString = _MANY) -> None:
    """Many processes, each with an event, a finished task and a timer; every fourth with a call."""
    with psycopg.ClientCursor(tables.connection) as cursor:
        cursor.execute(rows, {"namespace": NS, "now": T0, "rows": ROWS})


def fill_one(tables: Tables) -> None:
    """One process that has all rows: events, finished tasks, waiting calls, a blocked timer."""
    fill(tables, _ONE)


def fill_broken(tables: Tables) -> None:
    """The many, of which nine in ten are broken."""
    fill(tables)
    break_some(tables, 9)


def fill_blocked(tables: Tables) -> None:
    """The one, and few timers of others: none can be claimed, so the index of those that can is empty."""
    fill_one(tables)
    tables.execute(
        """
        INSERT INTO schedule
            (process_no, task_id, task_type, namespace_no, scheduled_time, claimable, timer)
        SELECT 10000000 + n, 10000000 + n, 'timeout', one.namespace_no, now(), FALSE, ''
        FROM generate_series(1, 9) AS n, (SELECT namespace_no FROM schedule LIMIT 1) AS one
        """
    )


def break_some(tables: Tables, tenths: int) -> None:
    """So many tenths of all processes."""
    tables.execute(
        """
        UPDATE processes SET status = 'error', detail = 'it broke', corrupted_by = 10 * process_no
        WHERE process_no %% 10 < %s
        """,
        tenths,
    )


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Params]]:
    """The statements that were sent, each with some parameters of its."""
    seen: dict[str, Params] = {}
    send = Session._send

    async def recording(self: Session, statements: Any, hints: Any = None) -> Any:
        seen.update(statements)
        return await send(self, statements, hints)

    monkeypatch.setattr(Session, "_send", recording)
    yield seen
    monkeypatch.undo()


async def strand(storage: Storage, dsn: str) -> None:
    """Leave a request on a broken process."""
    await start(storage, "p9")
    step = await hold(storage, request("p9"))
    await wait(storage, request("p9"))
    await save(storage, step, fail())
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO progressor.schedule "
            "SELECT t.process_no, t.task_id, now(), p.namespace_no, 'call', FALSE, '' "
            "FROM progressor.tasks AS t JOIN progressor.processes AS p USING (process_no) "
            "WHERE p.process_id = 'p9' AND t.status = 'cancelled'"
        )


LONG = timedelta(hours=1)


async def tour(dsn: str) -> None:
    """Send every statement at least once."""
    connections = LossyConnections(dsn, limit=1)
    storage = Storage(connections, patience=timedelta(seconds=10))
    await storage.register_namespace(NS, options={}, schemas={})
    with psycopg.connect(dsn, autocommit=True) as connection:
        Tables(connection).set_collector()
    await start(storage, "p1", set_timer(SECOND, events=events(2)))
    await save(storage, await hold(storage, request()), fail())
    await save(storage, await hold(storage, repair()), set_timer(SECOND))
    several = change_timers(SetTimer(after=LONG), SetTimer(after=LONG, name="b"), UnsetTimer("c"))
    await save(storage, await hold(storage, request()), several)
    for kind in (init("p16"), request("p16")):
        resting = (await hold(storage, kind)).step(resume())._replace(pause=SECOND)
        await storage.save_result([resting], now=T0 - SECOND)
    await save(storage, await hold(storage, request()), set_timer(SECOND))
    (timer,) = await claim_timers(storage, now=T0 + SECOND)
    await storage.hand_back([timer.task])
    await break_process(storage, "p2", by_timer=True)
    await storage.simple_repair([repair("p2")], now=T0)
    await break_init(storage, "unborn")
    await save(storage, await hold(storage, repair("unborn")), resume(status=ProcessStatus.INIT))
    # One that is there.
    await storage.prepare_init([init("p2")], now=T0)
    await start(storage, "p3")
    ref = await wait(storage, request("p3", worker_id=None))
    connections.late = 1
    await storage.capture_task(ref, worker_id=WORKER, lease=1, now=T0)
    await start(storage, "p4")
    step = await hold(storage, request("p4"))
    connections.late = 1
    await save(storage, step, removed())
    await storage.prepare_init([init("p5", worker_id=None, args=b"large" * 20_000)], now=T0)
    await storage.search("calls", NS, 5, worker_id=WORKER, lease=2, left=["init"], now=T0)
    await storage.search("timers", NS, 5, worker_id=WORKER, lease=2, left=["timeout x"], now=T0)
    await storage.others_serving(NS, "init", worker_id=WORKER, lease_age=SECOND)
    about = {"namespace": NS, "process_id": "p1", "idempotency_key": "key"}
    await storage.goes_on(sender_no=1, task_id=1, **about, is_start=True)
    await claim_calls(storage)
    long = LONG
    await collect(storage, T0 + long)
    await storage.remove(NS, "p1")
    item = Import(NS, "p6", "put", events=(Event(b""),), timers=(SetTimer(after=SECOND),))
    connections.late = 1
    await storage.put(item, now=T0)
    await move(storage, connections)
    await storage.replies([TaskKey(1, 1, 1, "key", b"hash")])
    await storage.drop_workers(evidence(T0), lease_age=SECOND)
    await storage.drop_leftovers(now=T0)
    await fused(storage)
    await messages(storage, connections)
    await storage.backlog(NS, most=10, now=T0)
    await storage.next_timers([NS])
    await storage.ripen(NS, limit=10, now=T0)
    await storage.holds(NS)
    await in_groups(storage)
    await by_rates(storage)
    await storage.retire(NS, lease_age=SECOND)
    await storage.status()
    await storage.waiting(NS)
    await storage.mailbox(NS, "p6")
    await storage.failed([NS])
    browsing = Browsing(connections, patience=SECOND)
    for sought in (Wanted(), Wanted(status="error"), Wanted(timer="overdue")):
        await browsing.browse(sought, cursor=None, looks=10, room=5)
    await storage.next_task(1)
    await strand(storage, dsn)
    await storage.cancel_stranded(FROM_THE_START)
    await storage.remove(NS, "p9")
    await storage.standstill(TaskRef(NS, 1, 1))
    await storage.task_hold(TaskRef(NS, 1, 1))
    old = TaskKey(1, 1, 1, "key", b"hash")
    await storage.redo([request("p6", worker_id=None)._replace(redoes=old)])
    await bulks(storage)
    await sweeps(storage)
    await feeds(storage)
    await watches(connections)
    await reencodes(storage)
    await audited(storage)
    async with connections.acquire() as session:
        mine = {"process_no": 1, "worker_id": WORKER, "lease": 1, "now": T0}
        await session.transact({"claimed_keys": mine})
        await session.transact({"own_task": {**mine, "idempotency_key": "key"}})
        due = {"namespace": NS, "limit": 10, "now": T0}
        await session.transact({"due_calls": due, "due_timers": due})
        await session.transact({"take_unseen": {**mine, "namespace": NS, "task_id": 1}})
        await session.transact(
            {"take_groups": {**mine, "namespace": NS, "group_no": bigints([1]), "limit": 10}}
        )
        rated = {**mine, **rate_params(RATES), "namespace": NS}
        await session.transact({"take_unseen_rated": {**rated, "task_id": 1}})
        await session.transact({"take_groups_rated": {**rated, "group_no": bigints([1]), "limit": 10}})
        await session.transact({"retire": {"name": "nobody.knows", "lease_age": SECOND}})
    await storage.running_here(WORKER)
    # A policy that retries, for what the collector then sends.
    await storage.register_namespace(NS, options={"on_zombie": "retry"}, schemas={})
    await hold(storage, init("p7"))
    await collect(storage, T0 + long)
    await connections.close()


async def messages(storage: Storage, connections: SessionPool) -> None:
    """A notice and two starts, one of a process that is there, are sent and delivered."""
    await start(storage, "p13")
    step = await hold(storage, request("p13"))
    sent = [Message(NS, "p13", "post"), *(Message(NS, name, kind="start") for name in ("p13", "p14"))]
    keyed = [replace(each, idempotency_key=f"m{n}", request_hash=b"") for n, each in enumerate(sent)]
    await save(storage, step, resume(messages=tuple(keyed)))
    outbox = Outbox(connections, patience=timedelta(seconds=10))
    await outbox.undelivered(1, limit=10)
    while (await outbox.deliver(now=T0)).more:
        pass
    await outbox.waiting(now=T0)
    await outbox._put_off(ValueError("it is refused"), [], None)


async def in_groups(storage: Storage) -> None:
    """A start in a group, and a claim there."""
    await wait(storage, init("p15", worker_id=None))
    (first,) = [each for each in await claim_calls(storage) if each.process.process_id == "p15"]
    await storage.enter_group(first.task, "acme")
    await storage.queue_timers(NS, limit=10, now=T0)
    groups = (await storage.groups_with_room(NS)).group_nos
    await storage.room_in_groups(NS, groups)
    await storage.search_groups(NS, 10, groups=groups, worker_id=WORKER, lease=5, now=T0)
    await storage.set_group_limit(NS, "acme", 3)
    await storage.groups(NS)
    await storage.remove(NS, "p15")


async def by_rates(storage: Storage) -> None:
    """Claims of all kinds in a namespace with rates."""
    mine = {"worker_id": WORKER, "lease": 6, "rates": RATES, "now": T0}
    await storage.search("calls", NS, 10, **mine)  # type: ignore[arg-type]
    await storage.search("calls", NS, 10, left=["call new"], **mine)  # type: ignore[arg-type]
    await storage.search("timers", NS, 10, **mine)  # type: ignore[arg-type]
    await storage.search("timers", NS, 10, left=["timeout new"], **mine)  # type: ignore[arg-type]
    await storage.capture_task(TaskRef(NS, 1, 1), **mine)  # type: ignore[arg-type]
    await storage.groups_with_room(NS, rates=RATES, now=T0)
    await storage.room_in_groups(NS, [1], rates=RATES, now=T0)
    await storage.search_groups(NS, 10, groups=[1], **mine)  # type: ignore[arg-type]
    await storage.rests(NS, now=T0)


async def audited(storage: Storage) -> None:
    """A repair by an operator, and looks at the audit."""
    await break_process(storage, "p17")
    by_hand = act_of(AuditVerb.REPAIR, default=None, step=None)
    await storage.simple_repair([repair("p17")._replace(act=by_hand)], now=T0)
    await storage.audit(limit=10)
    await storage.audit(namespace=NS, process_id="p17", limit=10)
    await storage.remove(NS, "p17")


async def sweeps(storage: Storage) -> None:
    """A round of a walk that deletes tasks and events."""
    await storage.set_retention(NS, Retention(tasks=timedelta(hours=1), events=1), now=T0)
    await storage.sweep(rate=1, now=T0 + timedelta(days=1))
    await storage.set_retention(NS, Retention(tasks=timedelta(hours=1), events=1, archive=True), now=T0)
    await start(storage, "p21", resume(events=(Event(b""), Event(b""))))

    async def keep(_batch: Batch) -> None:
        """As an archive that has it."""

    await storage.sweep_archived(keep, rate=1, now=T0 + timedelta(days=1))
    await storage.set_retention(NS, None)


async def feeds(storage: Storage) -> None:
    """A step of a namespace with a feed, and a look at it."""
    await start(storage, "p22", resume(events=(Event(b""),))._replace(feeds=True))
    await storage.fed_namespaces()
    await storage.feed_head()
    wanted = FeedFilter("e", [NS], ["paid"])
    await storage.read_feed(wanted, FeedPlace(0))
    head = await storage.feed_head()
    await storage.read_feed(wanted, head.beginning, slice_=Slice(1, 4))
    await storage.feed_place_at(T0)
    await subscriptions(storage, head.beginning)


async def subscriptions(storage: Storage, place: FeedPlace) -> None:
    """A reader of a slice commits, parks what fails, tries it again; operators look, and remove it."""
    await storage.subscribed("s", 1, place)
    _, (held,) = await storage.hold_slices("s", 1, host="here", lease_age=SECOND)
    await storage.note_failing(held.key, attempts=1, error="no")
    await storage.park_failing("s", act=None)
    entry = FeedEntry(place, 1, "e", NS, "p22", 1, 1, T0, None, None)
    parks = [Parked(entry, "1", 1, "no"), Parked(entry, "2", 0, None)]
    await storage.commit_slice(held.key, place, known=place, parks=parks)
    await storage.parked_processes(held.key)
    first, _ = await storage.parked_entries("s", behind=0, limit=10)
    await storage.act_on_parked("s", first.parked_no, skip=True, act=None)
    await storage.acted_on(held.key, limit=10)
    await storage.fail_parked(held.key, first.parked_no, "no")
    await storage.known_subscriptions("s")
    await storage.free_slices("s", 1, [0])
    await storage.leave_subscription("s", 1)
    await storage.move_subscription("s", place, act=None)
    await storage.remove_subscription("s", act=None)


async def watches(connections: LossyConnections) -> None:
    """A watch of a process, and a look at it."""
    reads = WatchReads(connections, patience=SECOND)
    await reads.find_watched(NS, "p22")
    await reads.look_watched([Life(1)], [0])
    await reads.read_watched(NS, "p22", Life(1), after=0, state=True, limit=10, room=100)


async def reencodes(storage: Storage) -> None:
    """A look at each table with values, and a write of one."""
    await start(storage, "p18")
    found = await storage.stored_values(ValueTable.STATES, RowKey(), {NS: b"prefix"}, ValueLook())
    key = found[-1].key._replace(id=1)
    for table in ValueTable:
        await storage.stored_values(table, RowKey(), {NS: b"prefix"}, ValueLook())
        kind = {ValueTable.STATES: "state", ValueTable.EVENTS: "event"}.get(table, "args")
        await storage.renew(table, [Renewal(key, NS, kind, b"old", b"new")], acts={})
    await storage.remove(NS, "p18")


async def bulks(storage: Storage) -> None:
    """A bulk that begins a repair, one that needs no handler, a preview, and what is asked of them."""
    await break_process(storage, "p9")
    await break_process(storage, "p10")
    await start(storage, "p11")
    await save(storage, await hold(storage, request("p11", name="pay")), fail())
    await storage.preview_bulk(NS, detail_like=None, handler=None)
    await storage.preview_newest(NS, detail_like=None, handler=None, looks=20, most=10)
    late = T0 + timedelta(minutes=1)
    for key, simple, redo in (("first", False, False), ("second", True, False), ("third", True, True)):
        item = NewBulk(NS, None, None, simple, None, b"hash", key, b"hash", SECOND, redo)
        made = await storage.make_bulk(item, now=T0 + SECOND)
        await storage.run_bulk(now=late, most=1)
        if redo:
            # Others are repaired first, and rounds of the first bulk come in between.
            for again in range(1, 9):
                await storage.run_bulk(now=late + again * SECOND, most=1)
        await storage.bulk(made.bulk.bulk_id)
        await storage.bulk_args(made.bulk.bulk_id, most=100)
        await storage.stop_bulk(made.bulk.bulk_id)
    await storage.next_bulk()
    await storage.running_bulks()


async def fused(storage: Storage) -> None:
    """A start and calls, in one transaction each: they come to their end, but for the last one."""

    async def ends(claimed: Sequence[Claimed]) -> list[Decision | None]:
        return [set_timer(SECOND, events=events(1)) for _ in claimed]

    async def ends_without_timer(claimed: Sequence[Claimed]) -> list[Decision | None]:
        return [resume(events=events(1)) for _ in claimed]

    async def goes_on(claimed: Sequence[Claimed]) -> list[Decision | None]:
        return [None for _ in claimed]

    await fuse(storage, [init("p8")], ends, now=T0)
    await fuse(storage, [request("p8"), request("nobody")], ends, now=T0)
    await fuse(storage, [request("p8")], ends_without_timer, now=T0)
    await fuse(storage, [request("p8")], goes_on, now=T0)
    await start(storage, "p12", set_timer(LONG, name="b"))
    await fuse(storage, [request("p12")], ends, now=T0)


async def move(storage: Storage, connections: LossyConnections) -> None:
    """A process leaves, and one with all that there can be enters."""
    assert await storage.fitting([Life(1, 1)], rows=1, size=1) == 1
    await storage.whole([Life(1, 1)])
    its: dict[str, Any] = {"namespace": NS, "process_id": "p20"}
    at: dict[str, Any] = {"created_at": T0, "status": "running", "status_changed_at": T0, "group": "g"}
    task = TaskRecord(**its, task_id=1, task_type="call", status="waiting", scheduled_time=T0)
    event = EventRecord(**its, event_id=1, task_id=1, timestamp=T0, payload=b"")
    to: dict[str, Any] = {"to_namespace": NS, "to_process_id": "p1", "task_type": "notify"}
    about: dict[str, Any] = {"n": 1, "attempts": 0, "created_at": T0, "due": T0}
    message = MessageRecord(**its, **to, **about, task_id=1, idempotency_key="k", request_hash=b"hash")
    whole = WholeProcess(ProcessRecord(**its, **at, last_event_id=1), [task], [event], [message])
    connections.late = 1
    await storage.import_processes([whole], now=T0)


async def plans(dsn: str, statements: dict[str, Params], *, session_state: bool = True) -> dict[str, Plan]:
    """Each statement's plan, as a session of the engine has it: prepared, or planned each time anew."""
    connections = SessionPool(dsn, limit=1, session_state=session_state)
    async with connections.acquire() as session:
        found = await plans_of(session, statements, session_state=session_state)
    await connections.close()
    return found


async def plans_of(
    session: Session, statements: dict[str, Params], *, session_state: bool
) -> dict[str, Plan]:
    """The same, of one session that goes on."""
    found = {}
    for name, params in statements.items():
        _, sql, names, _ = numbered(name)
        pgconn = session._pgconn
        if session_state:
            await session._prepare({name: params})
            values = ", ".join(["NULL"] * len(names))
            call = f'"{name}" ({values})' if values else f'"{name}"'
            pgconn.send_query_params(f"EXPLAIN (FORMAT JSON) EXECUTE {call}".encode(), [])
        else:
            planner = numbered("planner").sql
            pgconn.send_query_params(planner, [b"\1"], [0], [1], 1)
            values = [_encode(params[each]) for each in names]
            explain = b"EXPLAIN (FORMAT JSON) " + sql
            pgconn.send_query_params(explain, values, None, [1] * len(names), 1)
        told = await session._synced(["planner"] * (not session_state) + ["EXPLAIN"])
        (row,) = told["EXPLAIN"]
        found[name] = row["QUERY PLAN"][0]["Plan"]
    return found


def scans(plan: Plan) -> Iterator[Plan]:
    """All nodes that read a table."""
    if plan.get("Relation Name") in BIG and plan["Node Type"] != "ModifyTable":
        yield plan
    for child in plan.get("Plans", ()):
        yield from scans(child)


def is_by_key(scan: Plan) -> bool:
    """Whether no more rows are read than the key of one item has, or the place that was found by it."""
    condition = scan.get("Index Cond", "")
    match scan["Node Type"]:
        case "Tid Scan":
            return True
        case "Index Scan" | "Index Only Scan":
            wanted = KEYS.get(scan["Index Name"], ("no key",))
            return all(part in condition for part in wanted)
        case _:
            return False


def is_allowed(scan: Plan, name: str) -> bool:
    """Whether it reads the rows that it is meant to read; None: all of them."""
    place = name, scan["Relation Name"]
    wanted = OTHERS.get(place, "no other")
    if wanted is None:
        return True
    index = scan.get("Index Name")
    return wanted in scan.get("Index Cond", "") and index in ORDERS.get(place, {index}) - {None}


def faults(found: dict[str, Plan]) -> list[str]:
    """The scans that are not by the key that they should be by."""
    return [
        f"{name}: {scan['Node Type']} of {table} {scan.get('Index Name')} by {condition!r}"
        for name, plan in found.items()
        for scan in scans(plan)
        for table, condition in [(scan["Relation Name"], scan.get("Index Cond", ""))]
        if not is_by_key(scan) and not is_allowed(scan, name)
    ]


def keys(found: dict[str, Plan]) -> dict[str, list[tuple[str, str]]]:
    """The indexes by which each statement reads each table; all of a subscription is read by any."""
    return {
        name: sorted(
            (scan["Relation Name"], scan.get("Index Name", "place"))
            for scan in scans(plan)
            if not (scan["Relation Name"] == "parked" and OTHERS.get((name, "parked")) == "name =")
        )
        for name, plan in found.items()
    }


@pytest.fixture
async def hot(dsn: str, sent: dict[str, Params], tables: Tables) -> dict[str, Params]:
    """Every statement that touches processes, as it is sent; the tables are empty again."""
    await tour(dsn)
    tables.execute(
        "TRUNCATE processes, removed_processes, kept_answers, tasks, running, schedule, events, outbox, "
        "namespaces, groups, rates, feed, feed_leftovers, parked"
    )
    tables.execute("UPDATE feed_head SET position = 0, dropped = 0")
    found = {name: params for name, params in sent.items() if name not in OTHER_STATEMENTS}
    fed = {
        feeding(name): {**params, **FED} for name, params in found.items() if feeding(name) in STATEMENTS
    }
    return fed | found


async def test_every_statement_is_looked_at(hot: dict[str, Params]) -> None:
    """A statement that is added is looked at here too."""
    assert set(hot) == set(STATEMENTS) - OTHER_STATEMENTS


async def test_none_is_parallel(dsn: str, hot: dict[str, Params], tables: Tables) -> None:
    """No statement starts workers, which takes longer than all that it reads."""
    fill(tables)
    tables.execute("ANALYZE")
    names = ("parallel_setup_cost", "parallel_tuple_cost", "min_parallel_index_scan_size")
    (database,) = tables.execute("SELECT current_database() AS name")
    for each in names:
        tables.execute(f"ALTER DATABASE {database['name']} SET {each} = 0")  # type: ignore[arg-type] # a constant
    found = await plans(dsn, hot)
    assert [name for name, plan in found.items() if "Gather" in str(plan)] == []


async def test_on_empty_tables(dsn: str, hot: dict[str, Params]) -> None:
    """A database that was just made, never analyzed, gets plans for what it will become."""
    assert faults(await plans(dsn, hot)) == []


@pytest.mark.parametrize(
    "filled", [fill, fill_one, fill_broken, fill_blocked], ids=["many", "one", "broken", "blocked"]
)
@pytest.mark.parametrize("session_state", [True, False], ids=["session", "stateless"])
async def test_on_full_tables(
    dsn: str,
    hot: dict[str, Params],
    tables: Tables,
    filled: Callable[[Tables], None],
    session_state: bool,
) -> None:
    """Full tables have plans by keys, be the rows of many processes or of one, be few broken or most,
    and so they stay when an ANALYZE comes amid the run."""
    filled(tables)
    connections = SessionPool(dsn, limit=1, session_state=session_state)
    async with connections.acquire() as session:
        before = await plans_of(session, hot, session_state=session_state)
        assert faults(before) == []
        tables.execute("ANALYZE")
        after = await plans_of(session, hot, session_state=session_state)
        assert faults(after) == []
        assert keys(after) == keys(before)
    await connections.close()


@pytest.mark.parametrize("session_state", [True, False], ids=["session", "stateless"])
@pytest.mark.parametrize("look", ["ANALYZE", "VACUUM"])
async def test_on_tables_that_were_empty_when_looked_at(
    dsn: str, hot: dict[str, Params], tables: Tables, look: LiteralString, session_state: bool
) -> None:
    """Statistics that say "empty" lead to no other plan, neither before nor after the tables grow."""
    tables.execute(look)
    assert faults(await plans(dsn, hot, session_state=session_state)) == []
    fill(tables)
    assert faults(await plans(dsn, hot, session_state=session_state)) == []
    tables.execute("VACUUM running")
    assert faults(await plans(dsn, hot, session_state=session_state)) == []


_LEFT = {"limit": "10", "lease": "1", "left": "'{call other,timeout other}'"}
CLAIMS = {
    "search_calls": {"limit": "10", "lease": "1"},
    "search_timers": {"limit": "10", "lease": "1"},
    # Nothing of what waits is left to others.
    "search_served_calls": _LEFT,
    "search_served_timers": _LEFT,
    "backlog": {"most": "10", "after": "0"},
}


def sorts(plan: Plan, *, above: bool = False) -> Iterator[str]:
    """The sorts of what is read by the index of requests, which has them in the order of claims."""
    if above and plan.get("Index Name") == "schedule_calls":
        yield plan["Index Cond"]
    is_sort = plan["Node Type"] in ("Sort", "Incremental Sort")
    for child in plan.get("Plans", ()):
        # A part of WITH is sorted by itself, and what is claimed once more.
        apart = child["Parent Relationship"] == "InitPlan"
        yield from sorts(child, above=not apart and (above or is_sort))


def hurry(tables: Tables) -> None:
    """Give some requests that wait a priority, and most of them the same."""
    tables.execute(
        """
        UPDATE schedule SET order_time = scheduled_time - CASE process_no %% 40 WHEN 0 THEN -10 ELSE 5 END
            * interval '1 minute'
        WHERE task_type = 'call' AND process_no %% 8 = 0
        """
    )


@pytest.mark.parametrize("filled", [fill, fill_one], ids=["many", "one"])
@pytest.mark.parametrize("session_state", [True, False], ids=["session", "stateless"])
async def test_requests_are_read_in_the_order_of_claims(
    dsn: str,
    hot: dict[str, Params],
    tables: Tables,
    filled: Callable[[Tables], None],
    session_state: bool,
) -> None:
    """Nothing is sorted before it is claimed, whatever is known of the tables."""
    names = ("search_calls", "search_served_calls", "due_calls", "backlog", "waiting")
    claims = {name: hot[name] for name in names}

    async def sorted_now() -> list[str]:
        found = await plans(dsn, claims, session_state=session_state)
        assert all("schedule_calls" in str(plan) for plan in found.values())
        return [condition for plan in found.values() for condition in sorts(plan)]

    assert await sorted_now() == []
    filled(tables)
    assert await sorted_now() == []
    hurry(tables)
    assert await sorted_now() == []
    tables.execute("ANALYZE")
    assert await sorted_now() == []


@pytest.mark.parametrize("urgent", [False, True], ids=["plain", "urgent"])
@pytest.mark.parametrize("name", list(CLAIMS))
async def test_cost_of_a_claim(
    dsn: str, hot: dict[str, Params], tables: Tables, name: str, urgent: bool
) -> None:
    """A claim reads about as many rows as it takes, however many wait, are blocked, or not due."""
    fill(tables)
    if urgent:
        hurry(tables)
    values = {"namespace": f"'{NS}'", "worker_id": "1", "now": f"'{T0}'"} | CLAIMS[name]
    connections = SessionPool(dsn, limit=1)
    async with connections.acquire() as session:
        await session._prepare({name: hot[name]})
        arguments = ", ".join(values.get(each, "NULL") for each in numbered(name).names)
        sql = f'EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE "{name}" ({arguments})'
        session._pgconn.send_query_params(sql.encode(), [])
        (row,) = (await session._synced(["EXPLAIN"]))["EXPLAIN"]
    await connections.close()
    read = [
        scan["Actual Loops"] * (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0))
        for scan in scans(row["QUERY PLAN"][0]["Plan"])
    ]
    assert max(read) >= 10
    assert max(read) <= 30, read


@pytest.mark.parametrize("name", ["look_bulk", "broken_groups"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_a_round_of_a_bulk(
    dsn: str, hot: dict[str, Params], tables: Tables, name: str, analyzed: bool
) -> None:
    """It reads so many broken processes as it is to look at, from where it stands."""
    fill(tables)
    break_some(tables, 5)
    if analyzed:
        tables.execute("ANALYZE")
    values = {
        "namespace": f"'{NS}'",
        "detail_like": "'%other%'",
        "handler": "'init'",
        "cursor_at": f"'{T0}'",
        "cursor_no": str(ROWS // 2),
        "until": f"'{T0}'",
        "until_task": str(100 * ROWS),
        "looks": "20",
        "room": "10",
        "groups": "5",
        "most": "20",
    }
    read, buffers = await measured(dsn, name, hot[name], values)
    assert max(read) == 20
    # By the place where it begins, not from the first on.
    assert buffers <= 200


@pytest.mark.parametrize("name", ["broken_groups", "broken_groups_newest"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_a_preview_that_counts_a_few(
    dsn: str, hot: dict[str, Params], tables: Tables, name: str, analyzed: bool
) -> None:
    """It looks at no more broken processes once it has found as many as it counts."""
    fill(tables)
    break_some(tables, 5)
    if analyzed:
        tables.execute("ANALYZE")
    values = {"namespace": f"'{NS}'", "cursor_no": "0", "looks": str(ROWS), "groups": "5", "most": "20"}
    read, buffers = await measured(dsn, name, hot[name], values)
    # PostgreSQL 15 reads one ahead, to number them.
    assert 20 <= max(read) <= 21
    assert buffers <= 200


# What is wanted, but for what no process is.
BROWSED: dict[str, dict[str, str]] = {
    "rare status": {"status": "'init'"},
    "rare metadata": {"metadata": '\'{"plan": "pro"}\''},
    "no timer": {"has_timer": "FALSE"},
    "all of it": {"status": "'init'", "metadata": '\'{"plan": "pro"}\'', "has_timer": "FALSE"},
}


@pytest.mark.share(2)
@pytest.mark.parametrize("wanted", list(BROWSED))
@pytest.mark.parametrize("name", ["browse_created", "browse_broken", "browse_due"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_a_walk_that_finds_nothing(
    dsn: str, hot: dict[str, Params], tables: Tables, name: str, wanted: str, analyzed: bool
) -> None:
    """It reads as many rows as it may look at, from where it stands, whatever is wanted."""
    fill(tables)
    break_some(tables, 5)
    tables.execute('UPDATE processes SET metadata = \'{"plan": "free"}\'')
    if analyzed:
        tables.execute("ANALYZE")
    (known,) = tables.execute("SELECT namespace_no FROM namespaces")
    place = {
        "after_namespace": str(known["namespace_no"]),
        "after_at": f"'{T0 - 48 * LONG}'",
        "after_no": "5",
    }
    values = {**BROWSED[wanted], **place, "looks": "20", "room": "10", "now": f"'{T0}'"}
    read, buffers = await measured(dsn, name, hot[name], values)
    assert 0 < max(read) <= 20
    assert buffers <= 400


_HELD: LiteralString = """
INSERT INTO groups (namespace_no, group_key, group_limit)
SELECT namespace_no, key, most FROM namespaces, (VALUES ('full', 2), ('other', 3)) AS v (key, most);

-- Every process with a call is in the full group, but for 20 in the other one.
UPDATE processes SET group_no = CASE WHEN process_no <= 80 THEN 2 ELSE 1 END WHERE process_no %% 4 = 0;
UPDATE schedule SET claimable = FALSE, held_time = scheduled_time, group_no = p.group_no
FROM processes AS p WHERE p.process_no = schedule.process_no AND schedule.task_type = 'call';
INSERT INTO running (process_no, worker_id, task_id, lease, running_time, task_type, group_no)
SELECT process_no, 9, task_id, 9, scheduled_time, task_type, 1
FROM schedule WHERE group_no = 1 ORDER BY process_no LIMIT 2;
DELETE FROM schedule AS s USING running AS r WHERE r.process_no = s.process_no AND r.task_id = s.task_id;
"""

# The same of many groups: each is full by one step, and one waits there. The other one has the last number.
_HELD_BY_MANY: LiteralString = """
INSERT INTO groups (namespace_no, group_key, group_limit)
SELECT namespace_no, 'full-' || n, 1 FROM namespaces, generate_series(1, %(rows)s / 8) AS n
UNION ALL SELECT namespace_no, 'other', 3 FROM namespaces;

UPDATE processes SET group_no = CASE WHEN process_no <= 80 THEN %(rows)s / 8 + 1 ELSE 1 + process_no / 8 END
WHERE process_no %% 4 = 0;
UPDATE schedule SET claimable = FALSE, held_time = scheduled_time, group_no = p.group_no
FROM processes AS p WHERE p.process_no = schedule.process_no AND schedule.task_type = 'call';
INSERT INTO running (process_no, worker_id, task_id, lease, running_time, task_type, group_no)
SELECT DISTINCT ON (group_no) process_no, 9, task_id, 9, scheduled_time, task_type, group_no
FROM schedule WHERE group_no <= %(rows)s / 8 ORDER BY group_no, process_no;
DELETE FROM schedule AS s USING running AS r WHERE r.process_no = s.process_no AND r.task_id = s.task_id;
"""

# What a claim reads of each table, where full groups have a fourth of all tasks and another one room for 3.
BESIDE_FULL_GROUPS: dict[str, tuple[dict[str, str], int, int]] = {
    # The groups that one look reaches, by the first that waits there, and what runs in them.
    "groups_with_room": ({"after": "0", "groups": "32"}, 6, 70),
    # Those in which steps have ended, of which one has room.
    "room_in_groups": ({"group_no": "{groups}"}, 8, 8),
    "search_groups": ({"group_no": "{groups}", "limit": "10"}, 8, 8),
    "search_calls": ({"limit": "10"}, 1, 1),
    # Of the timers that are due some are of groups, and are left out.
    "search_timers": ({"limit": "10"}, 30, 30),
    "ripen": ({"limit": "10"}, 1, 1),
    "queue_timers": ({"limit": "10"}, 10, 10),
    "backlog": ({"most": "10", "after": "0"}, 12, 1010),
    "groups_with_room_rated": ({"after": "0", "groups": "32", **ADMITTED}, 6, 70),
    "room_in_groups_rated": ({"group_no": "{groups}", **ADMITTED}, 8, 8),
    "search_groups_rated": ({"group_no": "{groups}", "limit": "10", **ADMITTED}, 8, 8),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("name", list(BESIDE_FULL_GROUPS))
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
@pytest.mark.parametrize("filled", [_HELD, _HELD_BY_MANY], ids=["one", "many"])
async def test_cost_of_a_claim_beside_full_groups(
    dsn: str, hot: dict[str, Params], tables: Tables, name: str, analyzed: bool, filled: LiteralString
) -> None:
    """What waits in full groups is not read, but for the first of those that one look reaches."""
    fill(tables)
    with psycopg.ClientCursor(tables.connection) as cursor:
        cursor.execute(filled, {"rows": ROWS})
    if analyzed:
        tables.execute("ANALYZE")
    given, *most = BESIDE_FULL_GROUPS[name]
    (last,) = tables.execute("SELECT max(group_no) AS group_no FROM groups")
    given = {
        each: value.replace("{groups}", f"'{{1,{last['group_no']}}}'") for each, value in given.items()
    }
    values = {"namespace": f"'{NS}'", "worker_id": "1", "lease": "1", "now": f"'{T0}'", **given}
    read, buffers = await measured(dsn, name, hot[name], values)
    assert max(read) <= most[filled is _HELD_BY_MANY]
    assert buffers <= (12_000 if name == "backlog" and filled is _HELD_BY_MANY else 500)


@pytest.mark.parametrize("begun", [0, 2, 5])
@pytest.mark.parametrize("name", ["search_calls_rated", "search_timers_rated"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_a_claim_by_a_rate(
    dsn: str, hot: dict[str, Params], tables: Tables, name: str, analyzed: bool, begun: int
) -> None:
    """It reads as many tasks as its rate admits, of however many wait: none once all of it is used."""
    fill(tables)
    tables.execute(
        "INSERT INTO rates SELECT namespace_no, %s FROM namespaces", T0 + (begun - 4) * SECOND / 5
    )
    if analyzed:
        tables.execute("ANALYZE")
    values = {"namespace": f"'{NS}'", "worker_id": "1", "lease": "1", "limit": "100", "now": f"'{T0}'"}
    read, buffers = await measured(dsn, name, hot[name], {**values, **ADMITTED})
    assert max(read) == 5 - begun
    assert buffers <= 300


# What each may read of a table, and how many pages in all.
OVERSEEING: dict[str, tuple[dict[str, str], int, int]] = {
    "namespace_figures": ({"most": "20", "timers": "3", "now": f"'{T0}'"}, 20, 200),
    "broken_processes": ({"most": "20", "namespace": f"'{{{NS}}}'"}, 20, 200),
    "failed_timers": ({"most": "20", "namespace": f"'{{{NS}}}'"}, 20, 200),
    "choose_bulk": (
        {
            "process_no": f"'{{{', '.join(map(str, range(1, 21)))}}}'",
            "until": f"'{T0}'",
            "until_task": str(100 * ROWS),
        },
        # Twenty, and what EXPLAIN rounds up of each.
        25,
        200,
    ),
    # Twenty, of each the task that broke it, or the youngest that ran and the next one.
    "broken_requests": ({"process_no": f"'{{{', '.join(map(str, range(1, 21)))}}}'"}, 45, 350),
    "settle_bulk": ({"bulk_id": "7"}, 100, 2500),
}


@pytest.mark.share(2)
@pytest.mark.parametrize("tenths", [0, 1, 9])
@pytest.mark.parametrize("name", list(OVERSEEING))
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_overseeing(
    dsn: str, hot: dict[str, Params], tables: Tables, name: str, analyzed: bool, tenths: int
) -> None:
    """What an operator and a bulk ask reads so many rows as it is to, be all broken or nobody."""
    fill(tables)
    break_some(tables, tenths)
    tables.execute("TRUNCATE bulk_repairs")
    # Of each bulk a hundred are under way, and have ended.
    tables.execute(
        """
        INSERT INTO bulk_repairs (bulk_id, process_no, task_id)
        SELECT n / 100, n, 10 * n FROM generate_series(1, %s) AS n
        """,
        ROWS,
    )
    if analyzed:
        tables.execute("ANALYZE")
    values, rows, pages = OVERSEEING[name]
    read, buffers = await measured(dsn, name, hot[name], {"namespace": f"'{NS}'", **values})
    assert max(read, default=0) <= rows
    assert buffers <= pages


@pytest.mark.parametrize("filled", [fill, fill_one], ids=["many", "one"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_deep_mailboxes(
    dsn: str, hot: dict[str, Params], tables: Tables, filled: Callable[[Tables], None], analyzed: bool
) -> None:
    """A look reads no more than it is to, be there many mailboxes, or one that has all rows."""
    filled(tables)
    tables.execute(
        """
        INSERT INTO running (process_no, worker_id, task_id, lease, running_time, task_type)
        SELECT process_no, 1, 1, 1, now(), 'call' FROM processes LIMIT 20
        """
    )
    if analyzed:
        tables.execute("ANALYZE")
    values = {"namespace": f"'{NS}'", "heads": "20", "most": "10", "deepest": "5"}
    read, buffers = await measured(dsn, "waiting", hot["waiting"], values)
    assert sum(read) <= 600
    assert buffers <= 1000
    values = {"process_no": "'{1, 2, 3, 4, 5}'", "most": "20", "steps": "20", "span": "'1 minute'"}
    read, buffers = await measured(dsn, "mailboxes", hot["mailboxes"], values)
    assert sum(read) <= 250
    assert buffers <= 500


BULKS: dict[str, dict[str, str]] = {
    "bulks": {"bulk_id": "5", "limit": "1"},
    "bulk_of_key": {"idempotency_key": "'key-5'"},
    "bulk_args": {"bulk_id": "5", "most": "100"},
    "stop_bulk": {"bulk_id": "5"},
    "next_bulk": {},
    "running_bulks": {},
    "lock_bulk": {},
}


@pytest.mark.parametrize("name", list(BULKS))
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_where_many_bulks_have_ended(
    dsn: str, hot: dict[str, Params], sent: dict[str, Params], tables: Tables, name: str, analyzed: bool
) -> None:
    """One is found by its key, those that run by theirs, however many there ever were."""
    assert hot
    tables.execute("TRUNCATE bulks RESTART IDENTITY")
    tables.execute(
        """
        INSERT INTO bulks (
            created_at, until_task, namespace, simple, request_hash, idempotency_key, bulk_hash, pace,
            status, ended_at, paced_at, next_at, still_since
        )
        SELECT
            now(), n, %s, TRUE, '', 'key-' || n, '', interval '1 second',
            CASE WHEN n %% 5000 = 0 THEN 'running' ELSE 'finished' END,
            CASE WHEN n %% 5000 > 0 THEN now() END, now(), now(), now()
        FROM generate_series(1, %s) AS n
        """,
        NS,
        ROWS,
    )
    if analyzed:
        tables.execute("ANALYZE")
    _, buffers = await measured(dsn, name, sent[name], BULKS[name])
    assert buffers <= 20


# The next processes, from one on that is read in part; of the one process the next events.
WALK = {
    "letters": "'{c,e,b}'",
    "position": "0",
    "window": "10",
    "limit": "20",
    "bytes": "1000000",
    "slice": "0",
    "slices": "1",
    "walk_n": "0",
}


@pytest.mark.parametrize(("filled", "walk"), [(fill, ROWS // 2), (fill_one, 1)], ids=["many", "one"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_a_walk(
    dsn: str,
    hot: dict[str, Params],
    tables: Tables,
    filled: Callable[[Tables], None],
    walk: int,
    analyzed: bool,
) -> None:
    """It reads as many processes and events as it may look at, wherever it stands."""
    filled(tables)
    tables.execute("UPDATE namespaces SET options = options || '{\"feed\": true}'")
    if analyzed:
        tables.execute("ANALYZE")
    read, buffers = await measured(dsn, "walk_feed", hot["walk_feed"], {**WALK, "walk": str(walk)})
    assert max(read) <= 20
    assert buffers <= 300


@pytest.mark.parametrize(("rows", "reads", "most"), [(10, 2000, 21), (2000, 50, 50)])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_a_look_at_old_tasks(
    dsn: str, hot: dict[str, Params], tables: Tables, rows: int, reads: int, most: int, analyzed: bool
) -> None:
    """It reads no further than to the last task that it may find: of two tasks one has ended."""
    fill_one(tables)
    tables.execute("DELETE FROM outbox")
    tables.execute("DELETE FROM task_marks")
    if analyzed:
        tables.execute("ANALYZE")
    at = f"'{T0 + LONG}'"
    whole = {"process_no": "'{1}'", "corrupted_by": "'{NULL}'", "behind": "'{0}'", "bytes": "1000000"}
    bounds = {"rows": str(rows), "reads": str(reads), "tasks_before": at, "keys_before": at}
    read, buffers = await measured(dsn, "look_tasks", hot["look_tasks"], {**whole, **bounds})
    assert max(read) <= most
    assert buffers <= 8 * most


@pytest.mark.parametrize("handler", ["NULL", "'init'"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_a_slow_bulk(
    dsn: str, hot: dict[str, Params], tables: Tables, handler: str, analyzed: bool
) -> None:
    """A round that has room for a few looks no further than to the one behind them."""
    fill(tables)
    break_some(tables, 5)
    if analyzed:
        tables.execute("ANALYZE")
    values = {"namespace": f"'{NS}'", "handler": handler, "cursor_no": "0", "until": f"'{T0}'"}
    bounds = {"until_task": str(100 * ROWS), "looks": "1000", "room": "3"}
    read, buffers = await measured(dsn, "look_bulk", hot["look_bulk"], {**values, **bounds})
    # PostgreSQL 15 reads one ahead, to number them.
    assert max(read) <= 5
    assert buffers <= 60


@pytest.mark.parametrize("hours", [-1, 1], ids=["ripe", "unripe"])
@pytest.mark.parametrize("name", ["ripen", "backlog"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_what_rests(
    dsn: str, hot: dict[str, Params], tables: Tables, name: str, analyzed: bool, hours: int
) -> None:
    """Of all that is held until a time, a look reads the first, be it due or not."""
    fill(tables)
    tables.execute(
        "UPDATE schedule SET claimable = FALSE, held_time = %s WHERE task_type = 'call'", T0 + hours * LONG
    )
    if analyzed:
        tables.execute("ANALYZE")
    values = {"namespace": f"'{NS}'", "now": f"'{T0}'", "limit": "10", "most": "10", "after": "0"}
    read, buffers = await measured(dsn, name, hot[name], values)
    assert max(read) <= 10
    assert buffers <= 500


# Messages of a hundred senders to a target each; of one sender to one target, or to a target each.
LINES = {
    "many": ("1 + n %% 100", "'p-' || n %% 100"),
    "one": ("1", "'p'"),
    "fan": ("1", "'p-' || n"),
}


@pytest.mark.parametrize("lines", list(LINES))
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_a_flight(
    dsn: str, hot: dict[str, Params], tables: Tables, lines: str, analyzed: bool
) -> None:
    """It reads about as many messages as it takes, and of a sender with many targets some behind each."""
    sender, target = LINES[lines]
    tables.execute(
        f"""
        INSERT INTO outbox (
            process_no, task_id, created_at, due, n, task_type, namespace, process_id, idempotency_key,
            request_hash
        )
        SELECT {sender}, n, %s, %s, 0, 'notify', %s, {target}, 'message-' || n, ''
        FROM generate_series(1, %s) AS n
        """,  # type: ignore[arg-type] # of this module
        *(T0, T0, NS, ROWS),
    )
    if analyzed:
        tables.execute("ANALYZE")
    values = {"limit": "20", "bytes": "1000000", "now": f"'{T0}'", "most": "1000"}
    read, buffers = await measured(dsn, "take_messages", hot["take_messages"], values)
    assert max(read) <= (400 if lines == "fan" else 21)
    assert buffers <= 1000
    read, buffers = await measured(dsn, "waiting_messages", hot["waiting_messages"], values)
    assert max(read) <= 1000
    assert buffers <= 200


@pytest.mark.parametrize("filled", [fill, fill_one], ids=["many", "one"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_sizes(
    dsn: str, hot: dict[str, Params], tables: Tables, filled: Callable[[Tables], None], analyzed: bool
) -> None:
    """Tasks and events are counted up to a bound of all processes, not of each."""
    filled(tables)
    # As if each of many had a thousand.
    tables.execute("UPDATE tasks SET process_no = 1 + task_id / 1000 WHERE process_no <> 1")
    if analyzed:
        tables.execute("ANALYZE")
    values = {"process_no": f"'{{{', '.join(map(str, range(1, 101)))}}}'", "most": "50"}
    read, buffers = await measured(dsn, "whole_sizes", hot["whole_sizes"], values)
    assert sum(read) <= 151
    assert buffers <= 500


@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_leftovers(dsn: str, hot: dict[str, Params], tables: Tables, analyzed: bool) -> None:
    """A look at leftovers reads no more than it may drop, and of the feed no young row but the first."""
    fill(tables)
    tables.execute("UPDATE feed_head SET position = %s", ROWS - 11)
    tables.execute("UPDATE feed SET appended_at = appended_at - interval '1 hour' WHERE position <= 10")
    tables.execute(
        """
        INSERT INTO removed_processes (process_no, kept_until, has_events, has_requests)
        SELECT n, %s, TRUE, TRUE FROM generate_series(1, %s) AS n
        """,
        *(T0 + LONG, ROWS),
    )
    if analyzed:
        tables.execute("ANALYZE")
    values = {"limit": "100", "now": f"'{T0}'", "kept": "'1 minute'"}
    read, buffers = await measured(dsn, "drop_removed", hot["drop_removed"], values)
    assert max(read) <= 101
    assert buffers <= 2000
    read, buffers = await measured(dsn, "drop_feed", hot["drop_feed"], values)
    # PostgreSQL reads one ahead of the first young one.
    assert max(read) <= 12
    assert buffers <= 200


@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_a_moment(dsn: str, hot: dict[str, Params], tables: Tables, analyzed: bool) -> None:
    """The place of a moment is found by halves."""
    fill(tables)
    tables.execute("UPDATE feed_head SET position = %s", ROWS - 11)
    if analyzed:
        tables.execute("ANALYZE")
    for moment in (T0, T0 + SECOND):
        values = {"moment": f"'{moment}'", "back": "10"}
        read, buffers = await measured(dsn, "feed_place_at", hot["feed_place_at"], values)
        assert max(read) <= 25
        assert buffers <= 500


@pytest.mark.parametrize("filled", [fill, fill_one], ids=["many", "one"])
@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_a_commit(
    dsn: str, hot: dict[str, Params], tables: Tables, filled: Callable[[Tables], None], analyzed: bool
) -> None:
    """Of what is parked it reads what it changes, and of each process the last, however much there is."""
    filled(tables)
    tables.execute("UPDATE subscription_slices SET lease = 1, reader_id = 1")
    (head,) = tables.execute("SELECT position, epoch FROM feed_head")
    if analyzed:
        tables.execute("ANALYZE")
    place = {name: str(value) for name, value in head.items()}
    place |= {"item": "1", "n": "1", "mark": "0", "walk_n": "1"}
    parks = {
        "process_no": "{1,2}",
        "namespace": f"{{{NS},{NS}}}",
        "process_id": "{one,many-2}",
        "kind": "{e,e}",
        "n": "{1,1}",
        "task_id": "{1,1}",
        "timestamp": f'{{"{T0}","{T0}"}}',
        "place": "{a,b}",
        "attempts": "{1,1}",
        "error": "{no,NULL}",
    }
    values = {"name": "'s1'", "slice": "0", "lease": "1", "done": "'{2,4}'", **place}
    values |= {f"known_{name}": "0" for name in ("position", "item", "n", "walk_n")}
    values |= {f"parked_{name}": f"'{value}'" for name, value in parks.items()}
    read, buffers = await measured(dsn, "commit_slice", hot["commit_slice"], values)
    assert max(read) <= 3
    assert buffers <= 150


async def measured(dsn: str, name: str, params: Params, values: dict[str, str]) -> tuple[list[float], int]:
    """How many rows each scan of a prepared statement reads, and how many pages it touches."""
    plan = await performed(dsn, name, params, values)
    read = [
        scan["Actual Loops"] * (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0))
        for scan in scans(plan)
    ]
    return read, pages_of(plan)


def pages_of(plan: Plan) -> int:
    pages: int = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return pages


async def performed(dsn: str, name: str, params: Params, values: dict[str, str]) -> Plan:
    """The plan of a prepared statement as it ran."""
    connections = SessionPool(dsn, limit=1)
    async with connections.acquire() as session:
        await session._prepare({name: params})
        arguments = ", ".join(values.get(each, "NULL") for each in numbered(name).names)
        sql = f'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE "{name}" ({arguments})'
        session._pgconn.send_query_params(b"SELECT set_config('prg.locked', '{1}', FALSE)", [])
        session._pgconn.send_query_params(sql.encode(), [])
        (row,) = (await session._synced(["lock", "EXPLAIN"]))["EXPLAIN"]
    await connections.close()
    plan: Plan = row["QUERY PLAN"][0]["Plan"]
    return plan


def rows_of(plan: Plan) -> float:
    """How many rows all nodes of a plan looked at."""
    looked_at = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter")
    own: float = plan["Actual Loops"] * sum(plan.get(each, 0) for each in looked_at)
    return own + sum(rows_of(child) for child in plan.get("Plans", ()))


def serve_many(tables: Tables, count: int) -> None:
    """So many namespaces, all of them served by each of four workers."""
    tables.execute("TRUNCATE namespaces, workers")
    tables.execute(
        "INSERT INTO namespaces (name, options, schemas, updated_at) "
        "SELECT 'tenant.' || md5(n::text), '{}', '{}', now() FROM generate_series(1, %s) AS n",
        count,
    )
    tables.execute(
        """
        INSERT INTO workers
            (worker_id, host, namespaces, step_timeouts, lease_age, free_slots, steps, functions, seen_at)
        SELECT
            n, 'host', all_of.names, array_fill(interval '1 s', ARRAY[cardinality(all_of.names)]), '1 hour',
            all_of.slots, all_of.slots, '{}', now()
        FROM
            generate_series(1, 4) AS n,
            (SELECT array_agg(name) AS names, jsonb_object_agg(name, 10) AS slots FROM namespaces) AS all_of
        """
    )


@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_many_namespaces(dsn: str, tables: Tables, analyzed: bool) -> None:
    """What all namespaces cost grows with their number, not with its square; one costs no walk over all."""
    costs = []
    for count in (500, 2000):
        serve_many(tables, count)
        if analyzed:
            tables.execute("ANALYZE")
        plan = await performed(dsn, "known_namespaces", {"name": None}, {})
        costs.append((rows_of(plan), pages_of(plan)))
        one = await performed(
            dsn, "known_namespaces", {"name": None}, {"name": f"'tenant.{md5(b'7').hexdigest()}'"}
        )
        assert one["Actual Rows"] == 1
        assert rows_of(one) <= count + 50
    (rows, pages), (rows_of_more, pages_of_more) = costs
    assert rows_of_more <= 5 * rows
    assert pages_of_more <= 5 * pages


BY_NAME = (
    *("prepare_init", "one_life", "started", "prepare_call", "prepare_repair", "simple_repair", "prepared"),
    *("fused_look", "fused_make"),
)


@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
async def test_cost_of_a_name_that_had_many_lives(
    dsn: str, storage: Storage, hot: dict[str, Params], tables: Tables, analyzed: bool
) -> None:
    """A request by a name looks at a few lives that ended, and finds the answers of all others by key."""
    await storage.register_namespace(NS, options={}, schemas={})
    for _ in range(120):
        await start(storage, "again", removed())
    await start(storage, "again")
    if analyzed:
        tables.execute("ANALYZE")
    values = {
        "namespace": f"'{{{NS}}}'",
        "process_id": "'{again}'",
        "process_metadata": """'{"{}"}'""",
        "idempotency_key": "'{new}'",
        "lease": "'{1}'",
    }
    for name in BY_NAME:
        read, buffers = await measured(dsn, name, hot[name], values)
        assert sum(read) <= 40, name
        assert buffers <= 250, name


class Touched:
    """The rows of `schedule` that statements read and change: each is explained, undone, and then sent."""

    def __init__(self) -> None:
        self.read = self.changed = 0.0

    async def explain(self, session: Session, statements: dict[str, Params]) -> None:
        is_open = session._pgconn.transaction_status == pq.TransactionStatus.INTRANS
        await self._ask(session, b"SAVEPOINT explained" if is_open else b"BEGIN")
        for name in (each for each in statements if each not in ("begin", "commit", "rollback")):
            _, sql, names, formats = numbered(name)
            values = [_encode(statements[name][each]) for each in names]
            explain = b"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + sql
            (row,) = await self._ask(session, explain, values, formats)
            self._count(row["QUERY PLAN"][0]["Plan"])
        await self._ask(session, b"ROLLBACK TO explained" if is_open else b"ROLLBACK")

    async def _ask(self, session: Session, sql: bytes, *given: Any) -> list[Any]:
        session._pgconn.send_query_params(sql, *(given[:1] or ([],)), None, *(given[1:] or (None,)), 1)
        # By a name of its own: columns are remembered by it.
        return (await session._synced([f"{sql[:7]!r}"]))[f"{sql[:7]!r}"]

    def _count(self, plan: Plan) -> None:
        if plan.get("Relation Name") == "schedule" and plan["Node Type"] == "ModifyTable":
            self.changed += sum(child["Actual Rows"] * child["Actual Loops"] for child in plan["Plans"])
        elif plan.get("Relation Name") == "schedule":
            self.read += plan["Actual Loops"] * (
                plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
            )
        for child in plan.get("Plans", ()):
            self._count(child)


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Touched]:
    """What is sent from now on."""
    found, send = Touched(), Session._send

    async def explaining(self: Session, statements: Any, hints: Any = None) -> Any:
        await found.explain(self, statements)
        return await send(self, statements, hints)

    monkeypatch.setattr(Session, "_send", explaining)
    yield found
    monkeypatch.undo()


@pytest.mark.parametrize("fused", [False, True], ids=["prepared", "fused"])
async def test_a_call_changes_no_more_with_many_timers(
    storage: Storage, touched: Touched, fused: bool
) -> None:
    """Of 32 timers it blocks one. A handler sees all: they are read, and again for the first."""

    async def ends(claimed: Sequence[Claimed]) -> list[Decision | None]:
        return [resume(events=events(1)) for _ in claimed]

    await storage.register_namespace(NS, options={}, schemas={})
    names = ["", *(f"t{place}" for place in range(1, 32))]
    read, changed = [], []
    for process_id, count in (("one", 1), ("many", 32)):
        timers = change_timers(*(SetTimer(after=LONG, name=name) for name in names[:count]))
        await start(storage, process_id, timers)
        touched.read = touched.changed = 0
        if fused:
            await fuse(storage, [request(process_id)], ends, now=T0)
        else:
            await save(storage, await hold(storage, request(process_id)), resume())
        read.append(touched.read)
        changed.append(touched.changed)
    assert changed[0] == changed[1]
    # What is fused ends behind its lock, and blocks nothing.
    assert (changed[0] == 0) == fused
    assert read[1] <= read[0] + 3 * 32


# What steps change again and again, by table.
CHANGED = {
    "tasks": {
        *("status", "scheduled_time", "running_time", "finished_time", "response", "error"),
        *("last_retry_interval", "attempts_count", "worker_id", "lease"),
    },
    "processes": {"status", "previous_status", "status_changed_at", "aux_state", "last_event_id"},
    "running": {"task_id", "task_type", "lease", "running_time"},
    "workers": {"seen_at", "free_slots", "steps", "beats"},
}


@pytest.mark.parametrize("table", list(CHANGED))
def test_steps_change_no_indexed_column(tables: Tables, table: str) -> None:
    """An update of a step never has to write to an index, neither for a key nor for a predicate."""
    indexed = tables.execute(
        """
        SELECT DISTINCT a.attname
        FROM pg_index AS i
        JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
        JOIN pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
        WHERE i.indrelid = %s::regclass AND d.refobjid = i.indrelid
        UNION
        SELECT a.attname
        FROM pg_index AS i
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = %s::regclass
        """,
        table,
        table,
    )
    assert not CHANGED[table] & {row["attname"] for row in indexed}
