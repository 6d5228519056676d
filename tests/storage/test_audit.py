"""The audit: an entry for each act of an operator, in the transaction of the act, and none without one."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from progressor.acts import Act, AuditEntry, AuditVerb, Way, act_of, acting
from progressor.config import Retention
from progressor.errors import StorageUnavailable
from progressor.rights import Bearer, Rights, Scope
from progressor.storage.admin.bulks import NewBulk
from progressor.storage.operations import Storage
from progressor.storage.postgres.pipeline import Session
from progressor.storage.postgres.pool import SessionPool
from progressor.storage.statements import STATEMENTS
from progressor.storage.values import Import
from tests.storage.test_redo import ended, redo
from tests.support import (
    NS,
    SECOND,
    T0,
    LossyConnections,
    Tables,
    break_process,
    init,
    repair,
    request,
    start,
)


def act(verb: AuditVerb, **said: Any) -> Act:
    """An act of a client without a name."""
    return act_of(verb, default=None, step=None, **said)


def entries(tables: Tables) -> list[dict[str, Any]]:
    return tables.execute("SELECT * FROM audit ORDER BY acted_at, act_id")


async def _prepared(storage: Storage) -> None:
    await start(storage, "p1")


async def _with_bulk(storage: Storage) -> None:
    await storage.make_bulk(BULK)


async def _with_token(storage: Storage) -> None:
    await storage.create_token(BEARER, "shop", RIGHTS, lifetime=None)


BULK = NewBulk(NS, None, None, False, None, b"hash", "key", b"hash", SECOND)
BEARER = Bearer("0123456789abcdef", "5ec2e7" * 10 + "abcd")
RIGHTS = Rights(frozenset({Scope.ADMIN}), ("*",))
Do = Callable[[Storage, Act], Awaitable[Any]]
# Each verb, what it needs, what it does, and the columns that name what it changed.
ACTS: list[tuple[AuditVerb, Callable[[Storage], Awaitable[None]], Do, dict[str, str]]] = [
    (AuditVerb.PAUSE, _prepared, lambda s, a: s.set_paused(NS, True, act=a), {"namespace": NS}),
    (AuditVerb.RESUME, _prepared, lambda s, a: s.set_paused(NS, False, act=a), {"namespace": NS}),
    (
        AuditVerb.SET_GROUP_LIMIT,
        _prepared,
        lambda s, a: s.set_group_limit(NS, "acme", 3, act=a),
        {"namespace": NS, "subject": "group acme", "detail": "limit 3"},
    ),
    (
        AuditVerb.SET_RETENTION,
        _prepared,
        lambda s, a: s.set_retention(NS, Retention(tasks=timedelta(days=90), events=10), act=a),
        {"namespace": NS, "detail": "tasks P90D, events 10"},
    ),
    (AuditVerb.BEGIN_RETENTION, _prepared, lambda s, a: s.begin_sweep(NS, act=a), {"namespace": NS}),
    (
        AuditVerb.PUT,
        _prepared,
        lambda s, a: s.put(Import(NS, "p2", "put"), act=a),
        {"namespace": NS, "process_id": "p2"},
    ),
    (
        AuditVerb.REMOVE,
        _prepared,
        lambda s, a: s.remove(NS, "p1", act=a),
        {"namespace": NS, "process_id": "p1"},
    ),
    (
        AuditVerb.REPAIR_ALL,
        _prepared,
        lambda s, a: s.make_bulk(BULK, act=a),
        {"namespace": NS, "subject": "bulk 1"},
    ),
    (
        AuditVerb.STOP_BULK,
        _with_bulk,
        lambda s, a: s.stop_bulk(1, act=a),
        {"namespace": NS, "subject": "bulk 1"},
    ),
    (
        AuditVerb.CREATE_TOKEN,
        _prepared,
        lambda s, a: s.create_token(BEARER, "shop", RIGHTS, lifetime=None, act=a),
        {"subject": f"token {BEARER.token_id}", "detail": "shop"},
    ),
    (
        AuditVerb.REVOKE_TOKEN,
        _with_token,
        lambda s, a: s.revoke_token(BEARER.token_id, act=a),
        {"subject": f"token {BEARER.token_id}", "detail": "shop"},
    ),
]
REQUESTS = {
    AuditVerb.REPAIR: lambda storage, asked: storage.prepare_repair([asked]),
    AuditVerb.SIMPLE_REPAIR: lambda storage, asked: storage.simple_repair([asked]),
}
each_act = pytest.mark.parametrize(("verb", "prepare", "do", "named"), ACTS, ids=[row[0] for row in ACTS])


@each_act
async def test_an_act_leaves_one_entry(
    storage: Storage, tables: Tables, verb: AuditVerb, prepare: Any, do: Do, named: dict[str, str]
) -> None:
    """It names the act, what was changed, and the session; no secret and no value."""
    tables.set_namespace()
    await prepare(storage)
    with acting("eve", reason="a test", origin="desk", way=Way.CLI):
        await do(storage, act(verb))
    (entry,) = entries(tables)
    said = {"verb": verb, "actor": "eve", "reason": "a test", "origin": "desk", "way": "cli"}
    assert {name: entry[name] for name in said} == said
    changed = dict.fromkeys(("namespace", "process_id", "subject", "detail")) | named
    assert {name: entry[name] for name in changed} == changed
    (session,) = tables.execute("SELECT session_user::text AS role")
    assert entry["role"] == session["role"]
    assert "progressor" in entry["application"]
    assert BEARER.secret not in str(entry)


@each_act
async def test_an_act_whose_answer_was_lost_leaves_one_entry(
    dsn: str, tables: Tables, verb: AuditVerb, prepare: Any, do: Do, named: dict[str, str]
) -> None:
    """The repetition finds the entry of the first try."""
    del named
    tables.set_namespace()
    connections = LossyConnections(dsn, limit=1)
    storage = Storage(connections, patience=10 * SECOND)
    await prepare(storage)
    # Some look first, on a session of their own.
    connections.spared = int(verb in (AuditVerb.REMOVE, AuditVerb.STOP_BULK))
    connections.late = 1
    await do(storage, act(verb))
    assert not connections.late
    assert [entry["verb"] for entry in entries(tables)] == [verb]
    await connections.close()


@each_act
async def test_nothing_is_done_if_the_session_dies_before_the_entry(
    dsn: str,
    tables: Tables,
    monkeypatch: pytest.MonkeyPatch,
    verb: AuditVerb,
    prepare: Any,
    do: Do,
    named: dict[str, str],
) -> None:
    """There is no act without its entry: both are gone."""
    del named
    tables.set_namespace()
    connections = LossyConnections(dsn, limit=1)
    storage = Storage(connections, patience=timedelta(0))
    await prepare(storage)
    before = _all_rows(tables)
    send = Session._send

    async def dying(self: Session, statements: Any, hints: Any = None) -> Any:
        if "note_acts" in statements:
            with psycopg.connect(dsn, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 10000)", [self._pgconn.backend_pid])
        return await send(self, statements, hints)

    monkeypatch.setattr(Session, "_send", dying)
    with pytest.raises(StorageUnavailable):
        await do(storage, act(verb))
    monkeypatch.undo()
    assert _all_rows(tables) == before
    await connections.close()


def _all_rows(tables: Tables) -> list[Any]:
    return [
        tables.execute("SELECT * FROM namespaces"),
        tables.execute("SELECT * FROM processes"),
        tables.execute("SELECT * FROM tasks"),
        tables.execute("SELECT * FROM groups"),
        tables.execute("SELECT * FROM retention"),
        tables.execute("SELECT * FROM bulks"),
        tables.execute("SELECT * FROM tokens"),
        tables.execute("SELECT * FROM audit"),
    ]


@pytest.mark.parametrize(
    "do",
    [
        lambda s, a: s.set_paused("nobody.knows", True, act=a),
        lambda s, a: s.set_group_limit("nobody.knows", "acme", 3, act=a),
        lambda s, a: s.set_retention("nobody.knows", None, act=a),
        lambda s, a: s.begin_sweep("nobody.knows", act=a),
        lambda s, a: s.put(Import(NS, "p1", "put"), act=a),
        lambda s, a: s.put(Import("nobody.knows", "p1", "put"), act=a),
        lambda s, a: s.remove(NS, "p0", act=a),
        lambda s, a: s.stop_bulk(7, act=a),
        lambda s, a: s.revoke_token("0" * 16, act=a),
        lambda s, a: s.retire(NS, lease_age=SECOND, act=a),
        lambda s, a: s.retire("nobody.knows", lease_age=SECOND, act=a),
    ],
)
async def test_what_was_not_done_leaves_none(storage: Storage, tables: Tables, do: Do) -> None:
    """What is not there, or in the way."""
    tables.set_namespace()
    await start(storage, "p1")
    await do(storage, act(AuditVerb.PAUSE))
    assert entries(tables) == []


async def test_what_was_done_before_leaves_none(storage: Storage, tables: Tables) -> None:
    """A bulk of the same key, a bulk that was stopped, a token that was revoked."""
    tables.set_namespace()
    await _with_bulk(storage)
    await storage.stop_bulk(1)
    await _with_token(storage)
    await storage.revoke_token(BEARER.token_id)
    await storage.make_bulk(BULK, act=act(AuditVerb.REPAIR_ALL))
    await storage.stop_bulk(1, act=act(AuditVerb.STOP_BULK))
    await storage.revoke_token(BEARER.token_id, act=act(AuditVerb.REVOKE_TOKEN))
    assert entries(tables) == []


async def test_retiring(storage: Storage, tables: Tables) -> None:
    """The entry outlives the namespace."""
    tables.set_namespace()
    tables.execute("UPDATE namespaces SET updated_at = now() - interval '1 hour'")
    await storage.retire(NS, lease_age=SECOND, act=act(AuditVerb.RETIRE))
    (entry,) = entries(tables)
    assert (entry["verb"], entry["namespace"]) == ("retire", NS)
    assert tables.execute("SELECT FROM namespaces") == []


@pytest.mark.parametrize("verb", REQUESTS)
async def test_a_repair_leaves_one_entry(storage: Storage, tables: Tables, verb: AuditVerb) -> None:
    """Also if it is asked for again; a repair of a process that is not broken leaves none."""
    await break_process(storage, "p1")
    await start(storage, "p2")
    asked = repair("p1", key="once")._replace(act=act(verb))
    await REQUESTS[verb](storage, asked)
    await REQUESTS[verb](storage, asked._replace(act=act(verb)))
    await REQUESTS[verb](storage, repair("p2")._replace(act=act(verb)))
    await REQUESTS[verb](storage, repair("p3")._replace(act=act(verb)))
    (entry,) = entries(tables)
    assert (entry["verb"], entry["namespace"], entry["process_id"]) == (verb, NS, "p1")


@pytest.mark.parametrize("verb", REQUESTS)
@pytest.mark.parametrize("loss", ["early", "late"])
async def test_a_repair_whose_answer_was_lost_leaves_one_entry(
    dsn: str, tables: Tables, verb: AuditVerb, loss: str
) -> None:
    """Whether the first try was committed or not."""
    tables.set_namespace()
    connections = LossyConnections(dsn, limit=1)
    storage = Storage(connections, patience=10 * SECOND)
    await break_process(storage, "p1")
    setattr(connections, loss, 1)
    await REQUESTS[verb](storage, repair("p1")._replace(act=act(verb)))
    assert [entry["process_id"] for entry in entries(tables)] == ["p1"]
    await connections.close()


async def test_of_two_that_repair_at_once_one_leaves_an_entry(
    storage: Storage, dsn: str, tables: Tables
) -> None:
    """The one that waited for the lock finds the process in repair."""
    await break_process(storage, "p1")
    connections = LossyConnections(dsn, limit=1)
    other = Storage(connections, patience=10 * SECOND)
    asked = [repair("p1")._replace(act=act(AuditVerb.REPAIR)) for _ in range(2)]
    await asyncio.gather(storage.prepare_repair(asked[:1]), other.prepare_repair(asked[1:]))
    assert len(entries(tables)) == 1
    await connections.close()


async def test_acts_and_others_in_one_batch(storage: Storage, tables: Tables) -> None:
    """Each entry is of its own request; those of callers leave none."""
    for name in ("p1", "p2", "p3"):
        await start(storage, name)
    asked = [request(name, name="pause", worker_id=None) for name in ("p1", "p2", "nobody", "p3")]
    acts = [
        None,
        act(AuditVerb.PAUSE_SCHEDULE),
        act(AuditVerb.PAUSE_SCHEDULE),
        act(AuditVerb.RESUME_SCHEDULE),
    ]
    await storage.prepare_call([each._replace(act=of) for each, of in zip(asked, acts, strict=True)])
    found = {entry["process_id"]: entry["verb"] for entry in entries(tables)}
    assert found == {"p2": "pause_schedule", "p3": "resume_schedule"}


async def test_a_redo_leaves_one_entry(storage: Storage, tables: Tables) -> None:
    """With the task that is run again; a repetition leaves none, nor a redo of what is not there."""
    old = await ended(storage)
    for each in (old, old, old._replace(task_id=old.task_id + 1000)):
        await storage.redo([redo(each)._replace(act=act(AuditVerb.REDO))])
    (entry,) = entries(tables)
    said = (entry["verb"], entry["namespace"], entry["process_id"], entry["subject"])
    assert said == ("redo", NS, "p1", f"task {old.task_id}")


async def test_a_batch_without_acts_sends_no_statement_more(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls, starts and repairs of a bulk cost what they did."""
    await start(storage, "p1")
    await break_process(storage, "p2")
    sent: set[str] = set()
    send = Session._send

    async def recording(self: Session, statements: Any, hints: Any = None) -> Any:
        sent.update(statements)
        return await send(self, statements, hints)

    monkeypatch.setattr(Session, "_send", recording)
    await storage.prepare_call([request("p1")])
    await storage.prepare_repair([repair("p2")])
    await storage.prepare_init([init("p3")])
    assert {"prepare_call", "prepare_repair", "prepare_init"} <= sent
    assert not {"note_acts", "note_requests"} & sent


async def test_pages(storage: Storage, tables: Tables) -> None:
    """Newest first, behind a key; those of the same moment too."""
    tables.set_namespace()
    for number in range(7):
        await storage.set_retention(
            NS, None, act=act(AuditVerb.SET_RETENTION), now=T0 + number // 3 * SECOND
        )
    found: list[AuditEntry] = []
    key: str | None = None
    while True:
        page, key = await storage.audit(limit=2, cursor=key)
        found += page
        if key is None:
            break
    assert len({entry.act_id for entry in found}) == 7
    times = [entry.acted_at for entry in found]
    assert times == sorted(times, reverse=True)
    assert await storage.audit(limit=7) == (found, None)


async def test_filters(storage: Storage, tables: Tables) -> None:
    """By namespace, process, verb, time, and by the patterns of namespaces that a caller sees."""
    tables.set_namespace()
    tables.set_namespace("other")
    await start(storage, "p1")
    await storage.set_paused(NS, True, act=act(AuditVerb.PAUSE))
    await storage.set_paused("other", True, act=act(AuditVerb.PAUSE))
    await storage.remove(NS, "p1", act=act(AuditVerb.REMOVE), now=T0)
    await storage.create_token(BEARER, "shop", RIGHTS, lifetime=None, act=act(AuditVerb.CREATE_TOKEN))

    async def verbs(**wanted: Any) -> list[str]:
        found, _ = await storage.audit(limit=10, **wanted)
        return sorted(entry.verb for entry in found)

    assert await verbs() == ["create_token", "pause", "pause", "remove"]
    assert await verbs(namespace=NS) == ["pause", "remove"]
    assert await verbs(namespace=NS, process_id="p1") == ["remove"]
    assert await verbs(process_id="p1") == ["remove"]
    assert await verbs(namespace=NS, process_id="p2") == []
    assert await verbs(verb="remove") == ["remove"]
    assert await verbs(since=T0) == ["remove"]
    assert await verbs(ago=SECOND, now=T0 + 2 * SECOND) == []
    assert await verbs(namespaces=["oth*"]) == ["pause"]
    assert await verbs(namespaces=["*"]) == ["pause", "pause", "remove"]


def test_no_statement_changes_an_entry() -> None:
    """The audit is inserted into and read."""
    forbidden = ("UPDATE progressor.audit", "DELETE FROM progressor.audit", "DO UPDATE")
    of_audit = {name: sql for name, sql in STATEMENTS.items() if "progressor.audit" in sql}
    assert of_audit.keys() == {"note_acts", "note_requests", "audit", "audit_of_process"}
    assert not [name for name, sql in of_audit.items() if any(each in sql for each in forbidden)]


@pytest.mark.parametrize("right", ["SELECT, INSERT", "SELECT"])
async def test_a_role_that_may_only_insert(dsn: str, tables: Tables, right: LiteralString) -> None:
    """It can note acts; without that right nothing is done."""
    tables.set_namespace()
    role = f"notes_{secrets.token_hex(4)}"
    tables.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")  # type: ignore[arg-type]
    tables.execute(f"GRANT USAGE ON SCHEMA progressor TO {role}")  # type: ignore[arg-type]
    tables.execute(f"GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA progressor TO {role}")  # type: ignore[arg-type]
    tables.execute(f"REVOKE ALL ON audit FROM {role}")  # type: ignore[arg-type]
    tables.execute(f"GRANT {right} ON audit TO {role}")  # type: ignore[arg-type]
    connections = SessionPool(make_conninfo(dsn, user=role, password="x"), limit=1)
    storage = Storage(connections, patience=timedelta(0))
    if "INSERT" in right:
        assert await storage.set_paused(NS, True, act=act(AuditVerb.PAUSE))
        (entry,) = entries(tables)
        assert entry["actor"] == entry["role"] == role
    else:
        with pytest.raises(StorageUnavailable):
            await storage.set_paused(NS, True, act=act(AuditVerb.PAUSE))
        assert not tables.execute("SELECT FROM namespaces WHERE paused")
    await connections.close()
    tables.execute(f"DROP OWNED BY {role}")  # type: ignore[arg-type]
    tables.execute(f"DROP ROLE {role}")  # type: ignore[arg-type]
