"""Events reach a stream of NATS: all of them, each once, a process in its order, over kills too."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import nats
import pytest
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from pydantic import ValidationError

from progressor.errors import InvalidRequest, NonRetryable
from progressor.sinks.nats import NatsOptions, NatsSink, subject_of
from tests.clusters import free_port
from tests.sinks.entries import NS, by_process, event, numbered, told
from tests.sinks.nats_server import NatsServer, nats_server

_DEADLINE = 30.0
_SECRET = "hunter2hunter2"


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as running:
        yield running


@asynccontextmanager
async def jetstream(server: NatsServer) -> AsyncIterator[JetStreamContext]:
    connection = await nats.connect(server.url)
    try:
        yield connection.jetstream()
    finally:
        await connection.close()


async def create(server: NatsServer, **changed: Any) -> None:
    """Make the stream, of all subjects of the sink."""
    async with jetstream(server) as stream:
        await stream.add_stream(StreamConfig(**{"name": "events", "subjects": ["progressor.>"], **changed}))


@asynccontextmanager
async def opened(server: NatsServer, **changed: Any) -> AsyncIterator[NatsSink]:
    sink = NatsOptions(servers=server.url, **changed).open()
    try:
        yield sink
    finally:
        await sink.close()


async def read(server: NatsServer) -> list[Msg]:
    """All messages of the stream, in its order."""
    async with jetstream(server) as stream:
        count = (await stream.stream_info("events")).state.messages
        subscription = await stream.subscribe("progressor.>", ordered_consumer=True)
        return [await subscription.next_msg(_DEADLINE) for _ in range(count)]


def numbers(found: list[Msg]) -> dict[str, list[int]]:
    bodies = [json.loads(message.data) for message in found]
    return by_process((body["subject"], body["data"]["n"]) for body in bodies)


async def test_a_message_is_a_structured_cloudevent(server: NatsServer) -> None:
    """Its subject is of namespace and name, its header the id by which the stream drops duplicates."""
    await create(server)
    async with opened(server) as sink:
        await sink.send([event("élan\r\nvital", 7, {"amount": 5})])
    (message,) = await read(server)
    body = json.loads(message.data)
    assert message.subject == f"progressor.{NS}.paid"
    assert message.headers is not None
    assert message.headers["Content-Type"] == "application/cloudevents+json"
    assert message.headers["Nats-Msg-Id"] == f"progressor/{body['id']}"
    assert (body["specversion"], body["subject"], body["type"]) == ("1.0", "élan\r\nvital", f"{NS}.paid")
    assert body["data"] == {"amount": 5}


async def test_events_are_in_order_and_a_repetition_is_dropped(server: NatsServer) -> None:
    """Those of a process in theirs; what is sent again is there once."""
    await create(server)
    async with opened(server) as sink:
        await sink.send(numbered(20, 5))
        await sink.send(numbered(20, 10))
        await sink.send([])
    assert numbers(await read(server)) == {f"p{p}": list(range(1, 11)) for p in range(20)}


async def test_two_sinks_of_one_stream(server: NatsServer) -> None:
    """Each brings its copy of the same events: what one has sent is no duplicate of the other's."""
    await create(server)
    for subject in ("progressor.billing", "progressor.audit"):
        async with opened(server, subject=subject) as sink:
            await sink.send(numbered(1, 3))
    subjects = [message.subject for message in await read(server)]
    assert subjects == [f"progressor.{each}.{NS}.paid" for each in ("billing", "audit") for _ in range(3)]


async def test_a_server_that_is_killed_gets_all(server: NatsServer) -> None:
    """In the middle of a `send`, which fails: its repetition brings the rest, in order, each event once."""
    await create(server)
    async with opened(server) as sink:
        sending = asyncio.create_task(sink.send(numbered(20, 150)))
        while not await _stored(server):
            assert not sending.done()
        server.kill()
        with pytest.raises(ConnectionError):
            await sending
        server.start()
        assert 0 < await _stored(server) < 3000
        await _send_until_accepted(sink, numbered(20, 150))
    assert numbers(await read(server)) == {f"p{p}": list(range(1, 151)) for p in range(20)}


async def _stored(server: NatsServer) -> int:
    async with jetstream(server) as stream:
        return (await stream.stream_info("events")).state.messages


async def _send_until_accepted(sink: NatsSink, events: list[Any]) -> None:
    """As the owner of a sink does."""
    async with asyncio.timeout(_DEADLINE):
        while True:
            try:
                return await sink.send(events)
            except ConnectionError:
                await asyncio.sleep(0)


async def test_a_cancelled_send_can_be_repeated(server: NatsServer) -> None:
    """Nothing of it comes later."""
    await create(server)
    async with opened(server) as sink:
        sending = asyncio.create_task(sink.send(numbered(5, 600)))
        while not await _stored(server):
            assert not sending.done()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await sink.send(numbered(5, 600))
    assert numbers(await read(server)) == {f"p{p}": list(range(1, 601)) for p in range(5)}


async def test_a_subject_without_a_stream_is_an_error(server: NatsServer) -> None:
    """It says what to create; once that is there, the same sink sends."""
    async with opened(server, subject="out") as sink:
        with pytest.raises(ConnectionError, match=rf"out\.{NS}\.paid: create one.*--subjects 'out\.>'"):
            await sink.send([event("a")])
        await create(server, subjects=["out.>"])
        await sink.send([event("a")])
    assert await _stored(server) == 1


async def test_a_message_too_large_for_the_server_is_refused() -> None:
    """NonRetryable names it, and nothing of its batch is sent; its headers count too."""
    with nats_server("max_payload: 2KB") as server:
        await create(server)
        async with opened(server) as sink:
            with pytest.raises(NonRetryable, match=f"event 2 of {NS} a is larger than max_payload") as at:
                await sink.send([event("a", 1), event("a", 2, {"text": "x" * 1700})])
            assert "xxx" not in str(at.value)
            assert await _stored(server) == 0
            await sink.send([event("a", 3)])


async def test_a_message_too_large_for_the_stream_is_refused(server: NatsServer) -> None:
    """NonRetryable names it; what stands before it is stored."""
    await create(server, max_msg_size=1500)
    async with opened(server) as sink:
        with pytest.raises(NonRetryable, match=f"refuses event 2 of {NS} a"):
            await sink.send([event("a", 1), event("a", 2, {"text": "x" * 2000}), event("a", 3)])
        await sink.send([event("b", 1)])
    assert numbers(await read(server)) == {"a": [1], "b": [1]}


async def test_a_stream_that_is_full_is_an_ordinary_error(server: NatsServer) -> None:
    """There may be room later."""
    await create(server, max_msgs=1, discard="new")
    async with opened(server) as sink:
        with pytest.raises(ConnectionError, match="maximum messages exceeded"):
            await sink.send([event("a", 1), event("a", 2)])


async def test_a_server_that_cannot_be_reached_is_named() -> None:
    """And another one of the list is tried."""
    nowhere = f"nats://127.0.0.1:{free_port()}"
    sink = NatsOptions(servers=nowhere, timeout=5).open()
    with pytest.raises(ConnectionError, match=r"NATS cannot be reached: .*127"):
        await sink.send([event("a")])
    with nats_server() as server:
        await create(server)
        other = NatsOptions(servers=f"{nowhere}, {server.url}").open()
        await other.send([event("a")])
        await other.close()


async def test_a_password_is_used_and_never_shown() -> None:
    """Neither in the error of a wrong one nor in the options."""
    with nats_server('authorization { user: "u", password: "right" }') as server:
        options = NatsOptions(servers=server.url, user="u", password=_SECRET, timeout=5)
        sink = options.open()
        with pytest.raises(ConnectionError, match="Authorization Violation") as raised:
            await sink.send([event("a")])
        await sink.close()
        assert _SECRET not in f"{raised.value} {options!r} {options} {sink!r}"
        right = NatsOptions(servers=server.url, user="u", password="right").open()
        with pytest.raises(ConnectionError, match="no stream"):
            await right.send([event("a")])
        await right.close()


@pytest.mark.parametrize(
    ("namespace", "name", "subject"),
    [
        ("bank.account", "paid", "p.bank.account.paid"),
        ("bank..x.", "pa id.*>\n", "p.bank.%.x.%.pa%20id%2E%2A%3E%0A"),
        ("bank", "é%", "p.bank.%C3%A9%25"),
    ],
)
def test_a_subject_has_safe_tokens(namespace: str, name: str, subject: str) -> None:
    """Each name of an event is one token, without blanks and wildcards."""
    assert subject_of("p", event("a", namespace=namespace, name=name)) == subject


def test_the_subject_of_what_is_no_event() -> None:
    """Its last token is the kind; of a deleted event, `deleted`."""
    assert subject_of("p", told("a", "removed")) == f"p.{NS}.removed"
    assert subject_of("p", event("a", name=None, is_deleted=True)) == f"p.{NS}.deleted"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"servers": f"nats://u:{_SECRET}@h:1"}, "servers\n.*without a user"),
        ({"servers": "h:1"}, "servers"),
        ({"subject": "a.>"}, "subject"),
        ({"timeout": -1}, "timeout"),
        ({"prefix": "a"}, "prefix"),
    ],
)
def test_an_option_that_is_wrong_is_named(changed: dict[str, Any], said: str) -> None:
    """Without its value, which may be a secret."""
    with pytest.raises(ValidationError, match=said) as raised:
        NatsOptions(**{"servers": "nats://h:1", **changed})
    assert _SECRET not in str(raised.value)


def test_a_file_that_is_missing_is_named() -> None:
    """By its option, before anything is sent."""
    with pytest.raises(InvalidRequest, match="credentials: there is no file"):
        NatsOptions(servers="nats://h:1", credentials="/nowhere/x.creds").open()


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nats-py is not installed."""
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(InvalidRequest, match=r"pip install 'progressor-engine\[nats\]'"):
        NatsOptions(servers="nats://h:1").open()
