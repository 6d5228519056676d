"""Events reach Kafka in the order of each process, all of them, whatever the broker does meanwhile.

The broker is librdkafka's mock cluster; tests that need nothing special run against a cluster of your own
too, whose `host:port` is in PROGRESSOR_TEST_KAFKA.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pydantic import ValidationError

from progressor.errors import InvalidRequest, NonRetryable
from progressor.sinks.kafka import KafkaOptions, KafkaSink
from tests.clusters import free_port
from tests.sinks.entries import NS, by_process, event, is_a_beginning_then_all, numbered, told
from tests.sinks.kafka_mock import TRANSPORT, MockKafka, mock_kafka

_DEADLINE = 30.0
_REAL = os.environ.get("PROGRESSOR_TEST_KAFKA")
_SECRET = "hunter2hunter2"
# Numbers of errors in Kafka's protocol.
_TOO_LARGE, _POLICY, _INVALID_RECORD, _FENCED = 10, 44, 87, 90


@pytest.fixture
def mock() -> Iterator[MockKafka]:
    with mock_kafka() as cluster:
        yield cluster


@pytest.fixture(params=["mock", "real"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Brokers and a new topic: of the mock cluster, and of the one of PROGRESSOR_TEST_KAFKA."""
    topic = f"progressor-{uuid4().hex}"
    if request.param == "mock":
        with mock_kafka() as cluster:
            cluster.create(topic)
            yield cluster.brokers, topic
    elif _REAL is None:
        pytest.skip("PROGRESSOR_TEST_KAFKA names no broker")
    else:
        made = AdminClient({"bootstrap.servers": _REAL}).create_topics([NewTopic(topic, 3, 1)])
        made[topic].result(_DEADLINE)
        yield _REAL, topic


@asynccontextmanager
async def opened(brokers: str, topic: str, **changed: Any) -> AsyncIterator[KafkaSink]:
    sink = KafkaOptions(brokers=brokers, topic=topic, **changed).open()
    try:
        yield sink
    finally:
        await sink.close()


def read(brokers: str, topic: str) -> list[Message]:
    """All messages of a topic, those of each partition in their order."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            # The mock ends no transaction for those who read what is committed.
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )
    try:
        there = consumer.list_topics(topic, timeout=_DEADLINE).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in there])
        found: list[Message] = []
        ended: set[int | None] = set()
        while ended != set(there):
            (message,) = consumer.consume(1, timeout=_DEADLINE)
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                ended.add(message.partition())
        return found
    finally:
        consumer.close()


def written(brokers: str, topic: str) -> int:
    """How many messages a topic has."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "tests", "log_level": 0})
    try:
        there = consumer.list_topics(topic, timeout=_DEADLINE).topics[topic].partitions
        places = [TopicPartition(topic, partition) for partition in there]
        return sum(consumer.get_watermark_offsets(place, timeout=_DEADLINE)[1] for place in places)
    finally:
        consumer.close()


def numbers(found: list[Message]) -> dict[str, list[int]]:
    """The numbers of each process's events, and that each process has one partition."""
    partitions: dict[bytes, set[int | None]] = {}
    for message in found:
        partitions.setdefault(_key(message), set()).add(message.partition())
    assert all(len(each) == 1 for each in partitions.values())
    return by_process((_key(m).decode().removeprefix(f"{NS} "), json.loads(_value(m))["n"]) for m in found)


def _key(message: Message) -> bytes:
    key = message.key()
    assert isinstance(key, bytes)
    return key


def _value(message: Message) -> bytes:
    value = message.value()
    assert isinstance(value, bytes)
    return value


def headers(message: Message) -> dict[str, str]:
    listed: Any = message.headers()
    return {name: value.decode() for name, value in listed}


async def test_a_message_is_a_cloudevent_in_binary_mode(place: tuple[str, str]) -> None:
    """Its attributes are headers, its key is namespace and process, its value the payload as JSON."""
    async with opened(*place) as sink:
        await sink.send([event("élan vital", 7, {"amount": 5})])
    (message,) = read(*place)
    found = headers(message)
    assert _key(message) == f"{NS} élan vital".encode()
    assert json.loads(_value(message)) == {"amount": 5}
    assert found["content-type"] == "application/json"
    assert found["ce_specversion"] == "1.0"
    assert found["ce_subject"] == "élan vital"
    assert found["ce_type"] == f"{NS}.paid"
    assert "ce_datacontenttype" not in found


async def test_events_of_a_process_are_in_their_order(place: tuple[str, str]) -> None:
    """Over batches too, each once."""
    async with opened(*place) as sink:
        await sink.send(numbered(20, 10))
        await sink.send(numbered(20, 10, first=11))
        await sink.send([])
    assert numbers(read(*place)) == {f"p{p}": list(range(1, 21)) for p in range(20)}


async def test_a_lost_connection_is_no_failure(mock: MockKafka) -> None:
    """One `send` goes on over a new connection."""
    mock.create("t")
    async with opened(mock.brokers, "t", options={"batch.num.messages": 5}) as sink:
        mock.answer(0, TRANSPORT, 0, TRANSPORT, TRANSPORT)
        await sink.send(numbered(10, 10))
    found = numbers(read(mock.brokers, "t"))
    assert set(found) == {f"p{p}" for p in range(10)}
    for each in found.values():
        # The mock does not know a batch that it has got before, as a broker does.
        assert list(dict.fromkeys(each)) == list(range(1, 11))


async def test_a_broker_that_goes_and_comes_gets_all(mock: MockKafka) -> None:
    """It has a beginning of what was sent as it went, and then all, in order; nothing comes later."""
    mock.create("t")
    slow = {"batch.num.messages": 10, "max.in.flight": 1}
    async with opened(mock.brokers, "t", timeout=10, options=slow) as sink:
        mock.hold_answers(60)
        sending = asyncio.create_task(sink.send(numbered(10, 100)))
        while not await asyncio.to_thread(written, mock.brokers, "t"):
            assert not sending.done()
        mock.stop()
        with pytest.raises(ConnectionError, match="Kafka has not accepted all within 10 s"):
            await sending
        mock.start()
        mock.hold_answers(0)
        before = len(read(mock.brokers, "t"))
        assert 0 < before < 1000
        await send_until_accepted(sink, numbered(10, 100))
    found = numbers(read(mock.brokers, "t"))
    assert set(found) == {f"p{p}" for p in range(10)}
    assert all(is_a_beginning_then_all(each, last=100) for each in found.values())


async def send_until_accepted(sink: KafkaSink, events: list[Any]) -> None:
    """As the owner of a sink does."""
    async with asyncio.timeout(_DEADLINE):
        while True:
            try:
                return await sink.send(events)
            except ConnectionError:
                await asyncio.sleep(0)


async def test_answers_that_are_lost_make_duplicates_in_order(mock: MockKafka) -> None:
    """What was written without an answer stands before its repetition, and never comes again."""
    mock.create("t", 1)
    async with opened(mock.brokers, "t", timeout=5) as sink:
        await sink.send([event("a", 1)])
        mock.hold_answers(100_000)
        with pytest.raises(ConnectionError):
            await sink.send([event("a", 2), event("a", 3)])
        mock.hold_answers(0)
        await send_until_accepted(sink, [event("a", 2), event("a", 3)])
        await sink.send([event("a", 4)])
    assert numbers(read(mock.brokers, "t"))["a"] == [1, 2, 3, 2, 3, 4]


@pytest.mark.parametrize("transactional_id", [None, "one"])
async def test_nothing_is_written_behind_a_gap(mock: MockKafka, transactional_id: str | None) -> None:
    """A broker that refuses a batch writes none of those behind it."""
    mock.create("t", 1)
    options = {"batch.num.messages": 1, "max.in.flight": 1}
    async with opened(mock.brokers, "t", options=options, transactional_id=transactional_id) as sink:
        mock.answer(0, 0, _POLICY)
        with pytest.raises(ConnectionError, match=f"refuses event 3 of {NS} a"):
            await sink.send(numbered_of("a", 9))
        before = numbers(read(mock.brokers, "t"))["a"]
        # One more was under way: a broker refuses it by its number, as the mock does in transactions.
        assert before == [1, 2] or (before == [1, 2, 4] and transactional_id is None)
        await sink.send(numbered_of("a", 9))
    assert numbers(read(mock.brokers, "t"))["a"] == [*before, *range(1, 10)]


def numbered_of(process_id: str, count: int) -> list[Any]:
    return [event(process_id, n) for n in range(1, count + 1)]


async def test_a_message_too_large_for_the_producer_is_refused(mock: MockKafka) -> None:
    """NonRetryable names it, without what is in it."""
    mock.create("t", 1)
    async with opened(mock.brokers, "t", options={"message.max.bytes": 2000}) as sink:
        with pytest.raises(
            NonRetryable, match=rf"event 2 of {NS} a is larger than message\.max\.bytes"
        ) as at:
            await sink.send([event("a", 1), event("a", 2, {"n": 2, "text": "x" * 5000})])
        assert "xxx" not in str(at.value)
        await sink.send([event("a", 3)])
    assert numbers(read(mock.brokers, "t"))["a"][-1] == 3


async def test_a_batch_too_large_for_the_topic_is_sent_one_by_one(mock: MockKafka) -> None:
    """librdkafka makes batches without knowing the topic's limit: that refuses no event."""
    mock.create("t", 1)
    async with opened(mock.brokers, "t") as sink:
        mock.answer(_TOO_LARGE)
        await sink.send(numbered_of("a", 5))
        await sink.send([event("a", 6)])
    assert numbers(read(mock.brokers, "t"))["a"] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("answers", [(_TOO_LARGE, _TOO_LARGE), (_INVALID_RECORD,)])
async def test_a_message_that_the_broker_never_accepts_is_refused(
    mock: MockKafka, answers: tuple[int, ...]
) -> None:
    """Too large by itself, or invalid: NonRetryable, and the next one is sent."""
    mock.create("t", 1)
    async with opened(mock.brokers, "t") as sink:
        mock.answer(*answers)
        with pytest.raises(NonRetryable, match=f"refuses event 1 of {NS} a"):
            await sink.send([event("a", 1)])
        await sink.send([event("a", 2)])
    assert numbers(read(mock.brokers, "t"))["a"] == [2]


async def test_a_cancelled_send_ends_before_the_next_one(mock: MockKafka) -> None:
    """None of its messages comes behind those of the next."""
    mock.create("t", 1)
    async with opened(mock.brokers, "t", options={"batch.num.messages": 1, "max.in.flight": 1}) as sink:
        mock.hold_answers(60)
        sending = asyncio.create_task(sink.send(numbered_of("a", 1000)))
        while not await asyncio.to_thread(written, mock.brokers, "t"):
            assert not sending.done()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await sink.send(numbered_of("a", 3))
    found = numbers(read(mock.brokers, "t"))["a"]
    assert found == [*range(1, len(found) - 2), 1, 2, 3]
    assert len(found) < 1000


async def test_a_sink_can_be_closed_while_it_sends(mock: MockKafka) -> None:
    """The send fails, and the event loop was never blocked."""
    mock.create("t")
    mock.stop()
    sink = KafkaOptions(brokers=mock.brokers, topic="t").open()
    sending = asyncio.create_task(sink.send([event("a")]))
    # It hands the event to the sink's thread.
    await asyncio.sleep(0)
    assert not sending.done()
    await sink.close()
    with pytest.raises(ConnectionError, match="told to stop"):
        await sending


async def test_a_broker_that_cannot_be_reached_is_named() -> None:
    """With the last error of the connection, and without secrets."""
    broker = f"127.0.0.1:{free_port()}"
    options = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "user-of-tests",
        "sasl.password": _SECRET,
    }
    async with opened(broker, "t", timeout=3, options=options) as sink:
        with pytest.raises(ConnectionError) as raised:
            await sink.send([event("a")])
    assert broker in str(raised.value)
    assert _SECRET not in str(raised.value) + repr(sink)
    assert "user-of-tests" not in str(raised.value) + repr(sink)


async def test_mg_has_a_topic_for_events_and_one_for_processes(mock: MockKafka) -> None:
    """A step goes nowhere; the key is the same in both."""
    mock.create("events", 1)
    mock.create("lives", 1)
    async with opened(mock.brokers, "events", format="mg", lifecycle_topic="lives") as sink:
        await sink.send([told("a", "created"), event("a"), told("a", "step"), told("a", "removed")])
    (sent,) = read(mock.brokers, "events")
    lives = read(mock.brokers, "lives")
    assert headers(sent)["content-type"] == "application/vnd.apache.thrift.binary"
    assert _value(sent).startswith(b"\x0c\x00\x01\x0b\x00\x01\x00\x00\x00\x14billing.subscription")
    assert [_key(each) for each in (sent, *lives)] == [f"{NS} a".encode()] * 3


async def test_mg_without_a_lifecycle_topic_sends_events_alone(mock: MockKafka) -> None:
    """What happened to processes is left out."""
    mock.create("events", 1)
    async with opened(mock.brokers, "events", format="mg") as sink:
        await sink.send([told("a", "created")])
        await sink.send([told("a", "broken"), event("a")])
    assert len(read(mock.brokers, "events")) == 1


async def test_a_transactional_id_makes_a_transaction_of_each_send(mock: MockKafka) -> None:
    """A producer that is fenced by a later one of its id fails, and the next send has a producer anew."""
    mock.create("t", 1)
    async with opened(mock.brokers, "t", transactional_id="one") as sink:
        await sink.send(numbered_of("a", 2))
        mock.answer(_FENCED)
        with pytest.raises(ConnectionError):
            await sink.send([event("a", 3)])
        await sink.send([event("a", 3)])
        await sink.send([event("a", 4)])
    assert numbers(read(mock.brokers, "t"))["a"] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"brokers": ""}, "brokers"),
        ({"topic": "a b"}, "topic"),
        ({"timeout": 0}, "timeout"),
        ({"topics": "x"}, "topics"),
        ({"lifecycle_topic": "x"}, "lifecycle_topic goes with format"),
        ({"options": {"acks": "1", "sasl.password": _SECRET}}, "options must not have acks"),
    ],
)
def test_an_option_that_is_wrong_is_named(changed: dict[str, Any], said: str) -> None:
    """Without its value, which may be a secret."""
    with pytest.raises(ValidationError, match=said) as raised:
        KafkaOptions(**{"brokers": "b:1", "topic": "t", **changed})
    assert _SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sasl.pasword": _SECRET}, r"sasl\.pasword"),
        ({"security.protocol": "tls"}, r"security\.protocol"),
        ({"ssl.key.pem": _SECRET, "security.protocol": "ssl"}, r"ssl\.key\.pem"),
    ],
)
def test_an_option_of_librdkafka_is_checked_before_it_is_used(options: dict[str, str], said: str) -> None:
    """InvalidRequest names it, and shows no secret."""
    with pytest.raises(InvalidRequest, match=said) as raised:
        KafkaOptions(brokers="b:1", topic="t", options=options).open()
    assert raised.value.field == "options"
    assert _SECRET not in str(raised.value)


def test_options_do_not_show_secrets() -> None:
    """Neither as a text nor in an error."""
    options = KafkaOptions(brokers="b:1", topic="t", options={"sasl.password": _SECRET})
    assert _SECRET not in f"{options!r} {options}"


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where confluent-kafka is not installed."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(InvalidRequest, match=r"pip install 'progressor-engine\[kafka\]'"):
        KafkaOptions(brokers="b:1", topic="t").open()
