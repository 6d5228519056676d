"""A keyring between processes and the tables: all that moves a value, and all that does not decrypt."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from progressor import (
    Client,
    Engine,
    HandlerFailed,
    InvalidRequest,
    KeyMissing,
    Namespace,
    Process,
    ProcessBroken,
    ProcessStatus,
    RetryPolicy,
    SyncClient,
    TaskStatus,
    Undecryptable,
)
from progressor.codecs import Keyring
from tests.acceptance.conftest import MakeClient, MakeEngine
from tests.acceptance.support import Act, Scripted, until

K1, K2 = bytes(range(32)), bytes(range(32, 64))
ONE = Keyring("k1", {"k1": K1})
BEFORE = Keyring("k1", {"k1": K1, "k2": K2})
AFTER = Keyring("k2", {"k1": K1, "k2": K2})
TWO = Keyring("k2", {"k2": K2})
NS = "vault"


def vault(codec: Keyring | None = ONE, *, name: str = NS, **options: Any) -> Namespace:
    """Processes that keep a list of words, tell of them in events, and answer with them."""
    namespace = Namespace(
        name, codec=codec, retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1)), **options
    )

    @namespace.init
    async def open_(process: Process, words: list[str]) -> int:
        process.state = {"words": words}
        process.emit("opened", words=words)
        return len(words)

    @namespace.call
    async def add(process: Process, word: str) -> list[str]:
        if word == "fail":
            raise ValueError(process.process_id)
        process.state["words"].append(word)
        process.emit("added", word=word, by=process.context)
        return process.state["words"]

    @namespace.call
    async def tell(process: Process, to: list[str]) -> None:
        target, process_id = to
        process.send(target, process_id, "add", process.state["words"][0])
        process.send_start(target, f"{process_id}-new", process.state["words"])

    @namespace.call
    async def later(process: Process) -> None:
        process.set_timer(after=timedelta(milliseconds=1))

    @namespace.call
    async def end(process: Process) -> str:
        process.remove()
        return "ended"

    @namespace.timeout
    async def fire(process: Process) -> None:
        process.state["words"].append("fired")

    @namespace.repair
    async def mend(process: Process, words: list[str] | None) -> str:
        if words is not None:
            process.state = {"words": words}
        return "mended"

    return namespace


async def words(client: Client, process_id: str, *, namespace: str = NS) -> list[str]:
    return (await client.get(namespace, process_id)).state["words"]


async def until_broken(client: Client, process_id: str) -> Process:
    return await until(
        lambda: client.get(NS, process_id), lambda found: found.status is ProcessStatus.ERROR
    )


def run(dsn: str, statement: str, *values: Any) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(sql.SQL(statement), values)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


# Every column with a value that a codec sees.
COLUMNS = [
    ("processes", "aux_state"), ("tasks", "args"), ("tasks", "context"), ("tasks", "response"),
    ("events", "payload"),
]  # fmt: skip


async def test_all_that_a_process_exchanges_is_sealed(serve: MakeClient, dsn: str) -> None:
    """Every value in the tables is an envelope, and comes back to handlers and callers."""
    client = await serve(vault())
    assert await client.start(NS, "p", ["sesame"], context="who") == 1
    assert await client.call(NS, "p", "add", "open", context="sesame") == ["sesame", "open"]
    await client.notify(NS, "p", "add", "noted")
    await client.call(NS, "p", "later")
    await until(lambda: words(client, "p"), lambda found: found[-1:] == ["fired"])
    await client.put(NS, "q", state={"words": ["put"]}, events=[{"name": "e", "payload": "sesame"}])
    assert await words(client, "p") == ["sesame", "open", "noted", "fired"]
    history = (await client.get(NS, "p")).history
    assert [each.payload for each in history][1] == {"word": "open", "by": "sesame"}
    trace = await client.trace(NS, "p")
    assert (trace[1].args, trace[1].response) == ("open", ["sesame", "open"])
    for table, column in COLUMNS:
        stored = [bytes(row[0]) for row in run(dsn, f"SELECT {column} FROM progressor.{table}") if row[0]]
        assert stored
        assert all(each.startswith(ONE.active_prefix) for each in stored)


async def test_a_key_of_a_request_is_compared_by_its_plain_arguments(serve: MakeClient) -> None:
    """Sealed, they never have the same bytes twice; the same key is the same request all the same."""
    client = await serve(vault())
    for _ in range(2):
        assert await client.start(NS, "p", ["a"], idempotency_key="k") == 1
        assert await client.call(NS, "p", "add", "b", idempotency_key="l") == ["a", "b"]
    with pytest.raises(InvalidRequest, match="already used"):
        await client.call(NS, "p", "add", "c", idempotency_key="l")


async def test_messages_are_sealed_for_their_targets(serve: MakeClient) -> None:
    """Also those of a start, to another namespace, and to the process itself."""
    client = await serve(vault(), vault(name="other"))
    await client.start(NS, "p", ["word"])
    await client.start("other", "q", [])
    await client.call(NS, "p", "tell", ["other", "q"])
    await until(lambda: words(client, "q", namespace="other"), lambda found: found == ["word"])
    process = await until(lambda: client.search(namespace="other"), lambda page: len(page.items) == 2)
    assert {each.process_id: each.state for each in process.items}["q-new"] == {"words": ["word"]}
    await client.call(NS, "p", "tell", [NS, "p"])
    await until(lambda: words(client, "p"), lambda found: found == ["word", "word"])


async def test_a_redo_finds_the_arguments_of_its_first_run(serve: MakeClient) -> None:
    """They are copied as they are stored, within the process."""
    client = await serve(vault())
    await client.start(NS, "p", [])
    receipt = await client.submit_call(NS, "p", "add", "a", context="who")
    assert await client.answer(receipt) == ["a"]
    assert await client.redo(NS, "p", receipt.task_id) == ["a", "a"]
    assert (await client.get(NS, "p")).history[-1].payload == {"word": "a", "by": "who"}


async def test_a_bulk_repairs_many_processes_with_one_sealed_value(serve: MakeClient, dsn: str) -> None:
    """Its args are sealed before its processes are known, and each of them reads them."""
    client = await serve(vault())
    for process_id in ("p", "q"):
        await client.put(NS, process_id, state={"words": []}, status="error")
    bulk = await client.repair_all(NS, ["repaired"])
    await until(lambda: client.bulk(bulk.bulk_id), lambda found: found.repaired == 2)
    assert [await words(client, each) for each in ("p", "q")] == [["repaired"]] * 2
    (stored,) = run(dsn, "SELECT args FROM progressor.bulks")
    assert bytes(stored[0]).startswith(ONE.active_prefix)
    assert [each.args for each in await client.trace(NS, "p")][-1] == ["repaired"]


async def test_answers_of_a_removed_process_are_read(serve: MakeClient) -> None:
    """Its name is known for a day, and so is the place of its answers."""
    client = await serve(vault())
    await client.start(NS, "p", [])
    receipt = await client.submit_call(NS, "p", "end")
    assert await client.answer(receipt) == "ended"
    assert await client.result(NS, "p", receipt.task_id) == "ended"
    assert await client.call(NS, "p", "end", idempotency_key=receipt.idempotency_key) == "ended"


async def test_steps_with_sql_of_their_own(serve: MakeClient) -> None:
    """They are saved on another way, with the same values."""
    namespace = vault()

    @namespace.call
    async def asks(process: Process, word: str, *, connection: psycopg.AsyncConnection) -> str:
        (found,) = await (await connection.execute("SELECT %s::text", [word])).fetchone() or [""]
        process.state["words"].append(found)
        process.emit("asked", word=found)
        return found

    client = await serve(namespace)
    await client.start(NS, "p", [])
    assert await client.call(NS, "p", "asks", "a") == "a"
    assert await words(client, "p") == ["a"]


async def test_groups_are_named_of_sealed_arguments(engine: MakeEngine, client: MakeClient) -> None:
    """And an init whose arguments do not decrypt breaks its process, before it has a group."""
    await engine(vault(group=lambda args: args[0], group_limit=1))
    dispatcher = await client(codec=ONE)
    assert await dispatcher.start(NS, "p", ["a"]) == 1
    stranger = await client(codec=TWO)
    with pytest.raises(HandlerFailed, match="KeyMissing"):
        await stranger.start(NS, "q", ["a"])
    await until_broken(dispatcher, "q")


async def test_timers_from_outside(serve: MakeClient) -> None:
    """Their calls have sealed arguments too; the rule of a timer that recurs is the engine's own."""
    client = await serve(vault())
    await client.start(NS, "p", [])
    await client.set_timer(NS, "p", every=timedelta(days=1))
    await client.fire_timer(NS, "p")
    await until(lambda: words(client, "p"), lambda found: found == ["fired"])
    assert (await client.get(NS, "p")).timers[""].every == timedelta(days=1)
    assert [each for each in await client.trace(NS, "p") if each.task_type.is_timer]


async def test_plain_values_of_before_read_on(engine: MakeEngine, client: MakeClient, dsn: str) -> None:
    """Tables are mixed after the change: states, events, and requests that waited when it came."""
    async with Engine(dsn, [vault(None)]) as first:
        await first.client.start(NS, "p", ["before"])
        await first.client.call(NS, "p", "add", "too")
    waiting = await (await client()).submit_call(NS, "p", "add", "waited", context="who")
    await engine(vault())
    dispatcher = await client(codec=ONE)
    assert await dispatcher.answer(waiting) == ["before", "too", "waited"]
    assert await dispatcher.call(NS, "p", "add", "after") == ["before", "too", "waited", "after"]
    history = (await dispatcher.get(NS, "p")).history
    assert [each.payload.get("word") for each in history] == [None, "too", "waited", "after"]
    assert [each.args for each in await dispatcher.trace(NS, "p")][:2] == [["before"], "too"]


async def test_plain_requests_are_refused_if_the_keyring_says_so(
    engine: MakeEngine, client: MakeClient, dsn: str
) -> None:
    """One of a client without the codec is refused, and its process lives on; a plain state breaks it."""
    await engine(vault(Keyring("k1", {"k1": K1}, plain="refuse")))
    dispatcher = await client(codec=ONE)
    await dispatcher.start(NS, "p", [])
    with pytest.raises(InvalidRequest, match="args cannot be decoded"):
        await (await client()).call(NS, "p", "add", "a")
    assert await dispatcher.call(NS, "p", "add", "b") == ["b"]
    run(dsn, """UPDATE progressor.processes SET aux_state = '{"words": []}'::bytea""")
    with pytest.raises(HandlerFailed, match=r"Undecryptable.*not encrypted"):
        await dispatcher.call(NS, "p", "add", "c")


@pytest.mark.parametrize("kind", ["add", "later"])
async def test_a_missing_key_breaks_at_once_and_is_repaired(
    dsn: str, client: MakeClient, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A call or a timer that meets it breaks its process without another try; others go on; the caller is
    told; with the key a simple repair and a redo bring all of it back."""
    both, old = await client(codec=AFTER), await client(codec=ONE)
    async with Engine(dsn, [vault(AFTER)]) as engine:
        await engine.client.start(NS, "p", ["sesame"])
        await engine.client.call(NS, "p", "add", "open")
        if kind == "later":
            await engine.client.set_timer(NS, "p", after=timedelta(days=1))
            await engine.client.pause(NS)
            run(dsn, "UPDATE progressor.schedule SET scheduled_time = now()")
            run(dsn, "UPDATE progressor.tasks SET scheduled_time = now() WHERE task_type = 'timeout'")
    caplog.set_level(logging.DEBUG)
    async with Engine(dsn, [vault(ONE)]) as engine:
        await engine.client.resume(NS)
        assert await old.start(NS, "fine", []) == 0
        if kind == "add":
            with pytest.raises(HandlerFailed, match=r"KeyMissing.*'k2'"):
                await old.call(NS, "p", "add", "lost")
        await until_broken(both, "p")
        with pytest.raises(KeyMissing, match="k2"):
            _ = (await old.get(NS, "p")).state
        with pytest.raises(ProcessBroken):
            await old.call(NS, "p", "add", "no")
        assert await old.call(NS, "fine", "add", "a") == ["a"]
        broken = await both.get(NS, "p")
        entry = {each.task_id: each for each in await both.trace(NS, "p")}[broken.corrupted_by]
        assert (entry.status, entry.attempts_count) == (TaskStatus.ERROR, 0)
    assert not [each for each in caplog.messages if "sesame" in each]
    assert "sesame" not in str(broken.detail)
    async with Engine(dsn, [vault(AFTER)]):
        await both.simple_repair(NS, "p")
        if kind == "add":
            assert await both.redo(NS, "p", entry.task_id) == ["sesame", "open", "lost"]
        else:
            await until(lambda: words(both, "p"), lambda found: found[-1] == "fired")


async def test_arguments_of_a_missing_key_are_not_lost(dsn: str, client: MakeClient) -> None:
    """A notice of a client that has rotated too early breaks its process, and is run by the redo."""
    early = await client(codec=TWO)
    both = await client(codec=AFTER)
    async with Engine(dsn, [vault(ONE)]) as engine:
        await engine.client.start(NS, "p", ["a"])
        await early.notify(NS, "p", "add", "early")
        await until_broken(both, "p")
        broken = await both.get(NS, "p")
        assert "KeyMissing" in str(broken.detail)
    async with Engine(dsn, [vault(BEFORE)]):
        await both.simple_repair(NS, "p")
        await both.redo(NS, "p", broken.corrupted_by or 0)
        await until(lambda: words(both, "p"), lambda found: found == ["a", "early"])


async def test_an_init_of_a_missing_key_runs_after_its_repair(dsn: str, client: MakeClient) -> None:
    """The process is broken, and not gone: a simple repair runs its init."""
    early, both = await client(codec=TWO), await client(codec=AFTER)
    async with Engine(dsn, [vault(ONE)]) as engine:
        await engine.client.start(NS, "fine", [])
        with pytest.raises(HandlerFailed, match="KeyMissing"):
            await early.start(NS, "p", ["a"])
    async with Engine(dsn, [vault(BEFORE)]):
        await both.simple_repair(NS, "p")
        assert await words(both, "p") == ["a"]


async def test_a_state_that_is_set_unread_is_not_replaced_without_its_key(
    dsn: str, client: MakeClient
) -> None:
    """Its fields that the type does not know would be lost: the repair fails, and can be made again."""
    both = await client(codec=AFTER)
    async with Engine(dsn, [_typed(AFTER)]) as engine:
        await engine.client.put(NS, "p", state={"balance": 1, "of_a_newer_release": 2}, status="error")
    async with Engine(dsn, [_typed(ONE)]) as engine:
        with pytest.raises(HandlerFailed, match="KeyMissing"):
            await engine.client.repair(NS, "p", Act(add=1))
    async with Engine(dsn, [_typed(AFTER)]):
        await both.repair(NS, "p", Act(add=1))
    assert (await both.get(NS, "p")).state == {"balance": 2, "then": None, "of_a_newer_release": 2}


def _typed(codec: Keyring) -> Namespace:
    return Scripted(NS, codec=codec).namespace


@pytest.mark.parametrize(("table", "column"), COLUMNS)
async def test_a_flipped_bit_is_found_out(serve: MakeClient, dsn: str, table: str, column: str) -> None:
    """In each column that has values: the read or the step that needs the value gets the typed error."""
    client = await serve(vault())
    await client.start(NS, "p", ["a"])
    receipt = await client.submit_call(NS, "p", "add", "b", context="who")
    await client.answer(receipt)
    await client.start(NS, "fine", [])
    where = "process_no = (SELECT min(process_no) FROM progressor.processes)"
    last = f"octet_length({column}) - 1"
    flipped = f"set_byte({column}, {last}, get_byte({column}, {last}) # 1)"
    run(dsn, f"UPDATE progressor.{table} SET {column} = {flipped} WHERE {where}")
    with pytest.raises(Undecryptable) as raised:
        await _read_all(client, "p")
    assert raised.value.process_id == "p"
    assert raised.value.kind == {"aux_state": "state", "payload": "event"}.get(column, column)
    if column == "response":
        with pytest.raises(Undecryptable):
            await client.result(NS, "p", receipt.task_id)
    if column == "args":
        with pytest.raises(HandlerFailed, match="Undecryptable"):
            await client.redo(NS, "p", receipt.task_id)
    if column == "aux_state":
        with pytest.raises(HandlerFailed, match="Undecryptable"):
            await client.call(NS, "p", "add", "c")
    assert await client.call(NS, "fine", "add", "a") == ["a"]


async def _read_all(client: Client, process_id: str) -> list[Any]:
    found = await client.get(NS, process_id)
    return [found.state, found.history, await client.trace(NS, process_id)]


async def test_swapped_states_are_found_out(serve: MakeClient, dsn: str) -> None:
    """The states of two processes decrypt in their own rows alone; each breaks at its own step."""
    client = await serve(vault())
    await client.start(NS, "p", ["of p"])
    await client.start(NS, "q", ["of q"])
    run(
        dsn,
        "UPDATE progressor.processes AS p SET aux_state = o.aux_state FROM progressor.processes AS o "
        "WHERE o.process_id <> p.process_id",
    )
    for process_id in ("p", "q"):
        with pytest.raises(HandlerFailed, match="Undecryptable"):
            await client.call(NS, process_id, "add", "a")
        assert (await client.get(NS, process_id)).status is ProcessStatus.ERROR


async def test_arguments_of_another_process_are_found_out(
    engine: MakeEngine, client: MakeClient, dsn: str
) -> None:
    """A request whose arguments somebody copied from another process's does not run."""
    dispatcher = await client(codec=ONE)
    async with Engine(dsn, [vault()]) as first:
        await first.client.start(NS, "p", [])
        await first.client.start(NS, "q", [])
    mine = await dispatcher.submit_call(NS, "p", "add", "for p")
    theirs = await dispatcher.submit_call(NS, "q", "add", "for q")
    run(
        dsn,
        "UPDATE progressor.tasks AS t SET args = o.args FROM progressor.tasks AS o "
        "WHERE o.task_id = %s AND t.task_id = %s",
        mine.task_id,
        theirs.task_id,
    )
    await engine(vault())
    assert await dispatcher.answer(mine) == ["for p"]
    with pytest.raises(HandlerFailed, match="Undecryptable"):
        await dispatcher.answer(theirs)


async def test_a_sync_client_takes_a_keyring(engine: MakeEngine, dsn: str) -> None:
    """As the client does that it stands for."""
    await engine(vault())

    def ask() -> list[str]:
        with SyncClient(dsn, codec=ONE) as client:
            client.start(NS, "p", ["a"])
            return client.call(NS, "p", "add", "b")

    assert await asyncio.to_thread(ask) == ["a", "b"]
