"""When a client connects, for whom, and what it says before and after."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from progressor import (
    Client,
    Engine,
    InvalidRequest,
    Namespace,
    Process,
    ProcessStatus,
    SchemaMismatch,
    StorageUnavailable,
)
from progressor.storage import migrations, schema_check
from tests.acceptance.conftest import MakeEngine, Options, of_a_client
from tests.acceptance.support import NS, Account, Act, Scripted

Verb = Callable[[Client], Coroutine[Any, Any, Any]]
# The whole text: nothing was under way.
CLOSED = r"^the client is closed$"
VERBS: dict[str, Verb] = {
    "start": lambda client: client.start(NS, "new", Act(add=1)),
    "call": lambda client: client.call(NS, "p", "act", Act(add=1)),
    "notify": lambda client: client.notify(NS, "p", "act", Act()),
    "repair": lambda client: client.repair(NS, "broken", Act()),
    "simple_repair": lambda client: client.simple_repair(NS, "broken"),
    "get": lambda client: client.get(NS, "p"),
    "put": lambda client: client.put(NS, "new", state=Account()),
    "trace": lambda client: client.trace(NS, "p"),
    "search": lambda client: client.search(namespace=NS),
    "remove": lambda client: client.remove(NS, "p"),
}


@pytest.fixture
def options(mode: Options) -> Options:
    return of_a_client(mode)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for each time that a client looked at the schema, which is how it begins."""
    seen: list[str] = []
    look = schema_check.check

    def check(dsn: str, **options: Any) -> None:
        seen.append("looked")
        look(dsn, **options)

    monkeypatch.setattr(schema_check, "check", check)
    return seen


@pytest.mark.parametrize("verb", [*VERBS, "health"])
async def test_each_request_can_be_the_first(
    engine: MakeEngine, dsn: str, options: Options, verb: str
) -> None:
    """Without `async with` a client connects at its first request, and hears the answer."""
    running = await engine(Scripted().namespace)
    await running.client.start(NS, "p", Act())
    await running.client.put(NS, "broken", state=Account(), status="error")
    client = Client(dsn, **options)
    try:
        if verb == "health":
            assert (await client.health()).ok
        else:
            await VERBS[verb](client)
        assert await client.start(NS, "another", Act(add=5)) == 5
    finally:
        await client.close()


async def test_first_requests_connect_once(
    engine: MakeEngine, dsn: str, options: Options, looked: list[str]
) -> None:
    """Requests that are all the first share one connecting; entering it too."""
    await engine(Scripted().namespace)
    looked.clear()
    client = Client(dsn, **options)
    started = await asyncio.gather(*(client.start(NS, f"p{n}", Act(add=n)) for n in range(20)))
    async with client:
        assert started == list(range(20))
        assert looked == ["looked"]


async def test_who_gives_up_takes_the_connection_from_nobody(
    engine: MakeEngine, dsn: str, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request times out while it connects; the second, which waited with it, goes on."""
    running = await engine(Scripted().namespace)
    await running.client.start(NS, "p", Act(add=7))
    go_on, look, seen = threading.Event(), schema_check.check, []

    def check(dsn: str, **options: Any) -> None:
        seen.append("looked")
        assert go_on.wait(20)
        look(dsn, **options)

    monkeypatch.setattr(schema_check, "check", check)
    client = Client(dsn, **options)
    first = asyncio.create_task(client.call(NS, "p", "act", Act(add=1), timeout=0.2))
    second = asyncio.create_task(client.call(NS, "p", "act", Act(add=2)))
    with pytest.raises(StorageUnavailable, match="did not take the request"):
        await first
    go_on.set()
    assert await second == 9
    assert seen == ["looked"]
    await client.close()


async def test_after_a_failure_the_next_request_tries_again(
    empty_dsn: str, mode: Options, options: Options
) -> None:
    """Whoever waits for a connecting that fails hears why; the next request connects."""
    client = Client(empty_dsn, **options)
    failed = await asyncio.gather(*(verb(client) for verb in VERBS.values()), return_exceptions=True)
    assert {type(error) for error in failed} == {SchemaMismatch}
    health = await client.health()
    assert (health.ok, "progressor migrate" in str(health.detail)) == (False, True)
    assert health.fault == "database"
    await asyncio.to_thread(migrations.upgrade, empty_dsn)
    async with Engine(empty_dsn, [Scripted().namespace], **mode):
        assert await client.start(NS, "p", Act(add=1)) == 1
    await client.close()


@pytest.mark.parametrize("used", [True, False])
async def test_a_closed_client_says_so(
    engine: MakeEngine, dsn: str, options: Options, looked: list[str], used: bool
) -> None:
    """After `close` each method says that the client is closed, and nothing connects again."""
    running = await engine(Scripted().namespace)
    await running.client.start(NS, "p", Act())
    client = Client(dsn, **options)
    if used:
        await client.get(NS, "p")
    await client.close()
    await client.close()
    looked.clear()
    for verb in VERBS.values():
        with pytest.raises(StorageUnavailable, match=CLOSED):
            await verb(client)
    health = await client.health()
    assert (health.detail, health.fault) == ("the client is closed", None)
    with pytest.raises(StorageUnavailable, match=CLOSED):
        await client.__aenter__()
    assert looked == []


async def test_closed_while_it_connects(
    dsn: str, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for the connection of a client that is closed hears that, at once."""
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def check(_dsn: str, **_options: Any) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(20)

    monkeypatch.setattr(schema_check, "check", check)
    client = Client(dsn, **options)
    asking = asyncio.create_task(client.get(NS, "p"))
    await asyncio.wait_for(begun.wait(), 20)
    await client.close()
    with pytest.raises(StorageUnavailable, match=CLOSED):
        await asking
    go_on.set()


async def test_a_client_belongs_to_one_loop(engine: MakeEngine, dsn: str, options: Options) -> None:
    """From another event loop each request, and close, says where the client belongs."""
    await engine(Scripted().namespace)
    client = Client(dsn, **options)
    assert await client.start(NS, "p", Act(add=1)) == 1

    def elsewhere() -> None:
        for verb in (*VERBS.values(), Client.close):
            with pytest.raises(InvalidRequest, match="event loop of its first request") as caught:
                asyncio.run(verb(client))
            assert caught.value.field == "client"
        health = asyncio.run(client.health())
        # A probe asks for the database, which is well.
        assert (health.ok, health.fault) == (False, None)

    await asyncio.to_thread(elsewhere)
    assert await client.call(NS, "p", "act", Act(add=1)) == 2
    await client.close()


@pytest.mark.parametrize(
    "verb", ["start", "call", "notify", "repair", "put", "remove", "enter", "close", "an engine"]
)
def test_without_a_loop_of_asyncio(verb: str) -> None:
    """As under trio: refused, with what to do instead."""
    others: dict[str, Verb] = {"enter": Client.__aenter__, "close": Client.close}
    work: Coroutine[Any, Any, Any]
    if verb == "an engine":
        work = Engine("postgresql://", [Scripted().namespace]).__aenter__()
    else:
        work = (VERBS | others)[verb](Client("postgresql://"))
    with pytest.raises(InvalidRequest, match=r"an event loop of asyncio, .* use asyncio\.run") as caught:
        work.send(None)
    assert caught.value.field == "client"


async def test_a_client_that_failed_to_connect_belongs_to_no_loop(empty_dsn: str, options: Options) -> None:
    """Nothing lives on a loop on which nothing was connected: another one may try."""
    client = Client(empty_dsn, **options)

    def on_a_loop_of_its_own() -> None:
        with pytest.raises(SchemaMismatch):
            asyncio.run(client.get(NS, "p"))

    await asyncio.to_thread(on_a_loop_of_its_own)
    await asyncio.to_thread(on_a_loop_of_its_own)


async def test_a_client_that_nobody_closed_is_warned_of(
    engine: MakeEngine, dsn: str, options: Options
) -> None:
    """A client that connected and was dropped is a ResourceWarning; one that never did is none."""
    await engine(Scripted().namespace)
    unused = Client(dsn, **options)
    del unused
    gc.collect()
    client = Client(dsn, **options)
    await client.start(NS, "p", Act())
    node = client._node
    with pytest.warns(ResourceWarning, match=r"unclosed <progressor\.client\.client\.Client"):
        del client
    await node.stop()


def test_a_program_that_closes_nothing_ends(dsn: str) -> None:
    """A script with an un-entered client and no close gets its answers, and ends by itself."""
    script = f"""
import asyncio
from progressor import Client

client = Client({dsn!r})

async def main():
    print((await client.health()).ok)

asyncio.run(main())
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=True
    )
    assert (ran.stdout, ran.stderr) == ("True\n", "")


def test_a_client_whose_loop_is_closed_can_be_closed_on_another(dsn: str) -> None:
    """What could hold something up has ended with its loop."""
    script = f"""
import asyncio
from progressor import Client, StorageUnavailable

client = Client({dsn!r})
print(asyncio.run(client.health()).ok)
asyncio.run(client.close())
try:
    asyncio.run(client.get("shop", "p"))
except StorageUnavailable as error:
    print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=True
    )
    assert (ran.stdout, ran.stderr) == ("True\nthe client is closed\n", "")


async def test_a_handler_may_ask_through_a_client_that_nobody_entered(
    engine: MakeEngine, dsn: str, options: Options
) -> None:
    """A call on another process through such a client comes back, and the calling process lives on."""
    dispatcher = Client(dsn, **options)
    shop = Namespace("shop")

    @shop.init
    async def init(process: Process) -> int:
        return await dispatcher.call(NS, "p", "act", Act(add=2))

    running = await engine(Scripted().namespace, shop)
    await running.client.start(NS, "p", Act(add=1))
    assert await running.client.start("shop", "s") == 3
    assert (await running.client.get("shop", "s")).status is ProcessStatus.RUNNING
    await dispatcher.close()


async def test_an_engine_that_nobody_entered_says_what_to_do(dsn: str, mode: Options) -> None:
    """Its client, and whatever else it has only when it runs."""
    engine = Engine(dsn, [Scripted().namespace], **mode)
    for ask in (lambda: engine.client, lambda: engine.busy, lambda: asyncio.run(engine.stop())):
        with pytest.raises(InvalidRequest, match="enter it, `async with Engine") as caught:
            await asyncio.to_thread(ask)
        assert caught.value.field == "engine"


async def test_the_client_of_an_engine_ends_with_it(dsn: str, mode: Options) -> None:
    """After the block, and after an entering that failed, the engine's client is closed."""
    async with Engine(dsn, [Scripted().namespace], **mode) as engine:
        client = engine.client
        await client.start(NS, "p", Act())
    for asked in (client, engine.client):
        with pytest.raises(StorageUnavailable, match=CLOSED):
            await asked.get(NS, "p")


async def test_an_engine_that_did_not_start_has_no_client(empty_dsn: str, mode: Options) -> None:
    """Until it is entered with success."""
    engine = Engine(empty_dsn, [Scripted().namespace], **mode)
    with pytest.raises(SchemaMismatch):
        await engine.__aenter__()
    await asyncio.to_thread(migrations.upgrade, empty_dsn)
    with pytest.raises(InvalidRequest, match="the engine does not run: enter it"):
        await engine.client.get(NS, "p")
    async with engine:
        assert await engine.client.start(NS, "p", Act(add=1)) == 1


def test_who_leaves_does_not_wait_for_a_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look at the schema that hangs holds up neither a cancellation nor the end of the loop."""
    begun, answers, looked = threading.Event(), threading.Event(), threading.Event()

    def hang(_dsn: str, **_options: Any) -> None:
        begun.set()
        answers.wait(10)
        looked.set()

    async def leave() -> None:
        connecting = asyncio.create_task(Client("postgresql://nowhere").health())
        await asyncio.to_thread(begun.wait, 10)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

    monkeypatch.setattr(schema_check, "check", hang)
    asyncio.run(leave())
    assert (begun.is_set(), looked.is_set()) == (True, False)
    answers.set()
    assert looked.wait(10)
