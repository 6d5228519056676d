"""The sink of Kafka: each process in one partition, in order, at least once. It needs the extra `kafka`.

confluent-kafka, not aiokafka: its idempotent producer keeps requests to a partition in flight and in order,
and stops at the first gap, which that of aiokafka does not; it is librdkafka, which most clients of Kafka
are, with wheels for each Python, and brings a broker for tests.

Rule: of a `send` that failed the broker has a first part of each partition at most, and nothing of it is
sent any more once the error is raised. So a message is tried until the sink gives up all of them (no
time-out of its own, `enable.gapless.guarantee`), and a producer that failed is emptied and thrown away.
Brokers refuse what is in flight behind a message that they refused, by its sequence number.
What the broker had received by then it may still write; a `transactional_id` has it refuse that too.

Everything that waits does so in the one thread of the sink.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from progressor.client.results import FeedEvent
from progressor.errors import InvalidRequest, NonRetryable
from progressor.loggers import Logger
from progressor.sinks import cloudevents, mg

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

log = Logger("progressor.sinks.kafka")

_TOPIC: Final = r"^[A-Za-z0-9._-]{1,249}$"
# Seconds: after so long a thread looks whether it is to stop, and `close` gives up waiting.
_TICK, _LONGEST_CLOSE = 0.1, 5.0
_OURS: Final = {
    "acks": "all",
    "enable.idempotence": "true",
    "enable.gapless.guarantee": "true",
    "message.timeout.ms": 0,
}
_DEFAULTS: Final = {
    # As the clients in Java choose partitions.
    "partitioner": "murmur2_random",
    # A topic that does not exist is an error after so long.
    "topic.metadata.propagation.max.ms": 5000,
}
# librdkafka would write its log to stderr: what it tells of errors is in ours.
_UNHEARD: Final = logging.getLogger("progressor.sinks.librdkafka")
_UNHEARD.disabled = True
# Other names of what this sink decides.
_TAKEN: Final = {
    "bootstrap.servers": "brokers",
    "metadata.broker.list": "brokers",
    "transactional.id": "transactional_id",
    "request.required.acks": "acks=all",
    "delivery.timeout.ms": "timeout",
    "message.timeout.ms": "timeout",
    "acks": "acks=all",
    "enable.idempotence": "enable.idempotence=true",
    "enable.gapless.guarantee": "enable.gapless.guarantee=true",
    "test.mock.num.brokers": "brokers",
}
_SECRET = re.compile(r"password|secret|token|key|pem|oauthbearer|sasl\.username|config", re.IGNORECASE)
# Of librdkafka and the protocol: a message, or a batch of them, is larger than the limit of its topic.
_TOO_LARGE: Final = 10
# INVALID_TIMESTAMP, INVALID_RECORD.
_INVALID: Final = frozenset({32, 87})
_ALL_BROKERS_DOWN: Final = -187
# What follows from another failure: purged from the queue or in flight, and the fatal one that ended all.
_CONSEQUENCES: Final = frozenset({-152, -151, -150, -148})


class KafkaOptions(BaseModel):
    """A sink of the type `kafka`, as its table in TOML names it.

    `brokers` is `host:port`, with commas between several. `options` are those of librdkafka, such as
    `sasl.password`, and never shown. `timeout`, in seconds, is how long one `send` tries. With
    `format="mg"` events go to `topic`, and what happens to processes to `lifecycle_topic`; without one that
    is not sent.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    type: Literal["kafka"] = "kafka"
    brokers: str = Field(min_length=1)
    topic: str = Field(pattern=_TOPIC)
    format: Literal["cloudevents", "mg"] = "cloudevents"
    lifecycle_topic: str | None = Field(default=None, pattern=_TOPIC)
    transactional_id: str | None = Field(default=None, min_length=1)
    timeout: float = Field(default=30, gt=0, le=3600)
    options: dict[str, Any] = Field(default_factory=dict, repr=False)

    @model_validator(mode="after")
    def _check(self) -> KafkaOptions:
        if self.lifecycle_topic is not None and self.format != "mg":
            raise ValueError('lifecycle_topic goes with format = "mg"; else all goes to topic')
        for name in self.options:
            if name in _TAKEN:
                raise ValueError(f"options must not have {name}: the sink has {_TAKEN[name]}")
        return self

    def open(self) -> KafkaSink:
        """Return the sink; InvalidRequest if librdkafka does not take the options."""
        return KafkaSink(self)


class KafkaRecord(NamedTuple):
    """An event as a message of Kafka."""

    event: FeedEvent
    topic: str
    value: bytes
    headers: list[tuple[str, bytes]]

    @property
    def key(self) -> str:
        return f"{self.event.namespace} {self.event.process_id}"


def records(options: KafkaOptions, events: Sequence[FeedEvent]) -> Iterator[KafkaRecord]:
    """Return the messages of these; NonRetryable at an event that the format cannot hold."""
    for event in events:
        topic, content_type = options.topic, None
        value: bytes | None
        if options.format == "cloudevents":
            value = cloudevents.data(event)
        elif event.kind == "event":
            value, content_type = mg.sink_event(event), mg.CONTENT_TYPE
        elif options.lifecycle_topic is None:
            continue
        else:
            topic, content_type = options.lifecycle_topic, mg.CONTENT_TYPE
            value = mg.lifecycle_event(event)
        if value is not None:
            yield KafkaRecord(event, topic, value, _headers(event, content_type))


def _headers(event: FeedEvent, content_type: str | None) -> list[tuple[str, bytes]]:
    """Return the headers of the binary mode of CloudEvents; consumers of mg look at none."""
    found = cloudevents.attributes(event)
    content_type = content_type or found.get("datacontenttype", "application/json")
    own = [(f"ce_{name}", text.encode()) for name, text in found.items() if name != "datacontenttype"]
    return [("content-type", content_type.encode()), *own]


class KafkaSink:
    """A sink of Kafka. Make it with `KafkaOptions.open`."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._attempts = _Attempts(options)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="progressor kafka")
        self._given_up = threading.Event()

    def __repr__(self) -> str:
        return f"<KafkaSink of topic {self._options.topic}>"

    async def send(self, events: Sequence[FeedEvent]) -> None:
        """Send these; return once all replicas in sync have them.

        Raises NonRetryable if Kafka refuses one as too large or invalid; ConnectionError if it has not
        accepted all within `timeout`. A cancelled call stops sending before the next one begins.
        """
        given_up = self._given_up = threading.Event()
        sending = self._thread.submit(self._send, events, given_up)
        try:
            await asyncio.wrap_future(sending)
        except asyncio.CancelledError:
            given_up.set()
            raise

    async def close(self) -> None:
        """Stop what is sent, and let go of the connections."""
        self._given_up.set()
        closing = self._thread.submit(self._attempts.end)
        self._thread.shutdown(wait=False)
        await asyncio.wait([asyncio.wrap_future(closing)], timeout=_LONGEST_CLOSE)

    def _send(self, events: Sequence[FeedEvent], given_up: threading.Event) -> None:
        found = list(records(self._options, events))
        deadline = time.monotonic() + self._options.timeout
        if not found:
            return
        try:
            self._attempts.send(found, deadline, given_up)
        except _BatchTooLarge:
            # It may be the batch alone, which librdkafka makes without knowing the limit of the topic.
            self._attempts.is_single = True
            try:
                self._attempts.send(found, deadline, given_up)
            except _BatchTooLarge as error:
                self._attempts.is_single = False
                raise NonRetryable(str(error)) from None
            log.warning(
                "Kafka refuses batches as too large: each message goes alone now",
                extra={"topic": self._options.topic, "advice": "set batch.size to the topic's limit"},
            )


class _BatchTooLarge(Exception):
    """The broker refuses a batch as larger than the limit of its topic."""


class _Delivery:
    """The reports of one attempt: the first failure, and of which message it is."""

    def __init__(self) -> None:
        self.failed: tuple[KafkaRecord, KafkaError] | None = None

    def report(self, record: KafkaRecord, error: KafkaError | None, _message: object) -> None:
        if error is not None and (self.failed is None or self.failed[1].code() in _CONSEQUENCES):
            self.failed = record, error


class _Attempts:
    """The producer of a sink, used by its thread alone: a new one after each failure."""

    def __init__(self, options: KafkaOptions) -> None:
        self.is_single = False
        """Whether each message is a batch of its own."""
        self._options = options
        self._producer: Producer | None = None
        self._trouble = ""
        self._secrets = _secrets(options.options)
        try:
            # Without brokers, it connects to none: the options alone are looked at.
            self._new(brokers="").close()
        except _library().KafkaException as error:
            raise InvalidRequest(f"options: {self._without_secrets(error)}", field="options") from None

    def send(self, found: Sequence[KafkaRecord], deadline: float, given_up: threading.Event) -> None:
        """Have all of these accepted; the producer of a failed attempt is gone when this raises."""
        self._trouble, delivery = "", _Delivery()
        try:
            self._deliver(found, delivery, deadline, given_up)
        except _library().KafkaException as error:
            # Fatal, mostly: the reports that come now have the cause.
            self.end()
            self._check(delivery)
            raise ConnectionError(f"Kafka: {self._without_secrets(error)}") from None
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Throw the producer away, with all that it would still send."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        while len(producer):
            # A purge makes a gap, which is fatal: raised here, with nothing left to be done about it.
            with suppress(_library().KafkaException):
                producer.purge()
                producer.flush(_TICK)
        with suppress(_library().KafkaException):
            producer.close()

    def _deliver(
        self, found: Sequence[KafkaRecord], delivery: _Delivery, deadline: float, given_up: threading.Event
    ) -> None:
        producer = self._opened(deadline)
        is_transaction = self._options.transactional_id is not None
        if is_transaction:
            producer.begin_transaction()
        for record in found:
            while not self._is_taken(producer, record, delivery):
                producer.poll(_TICK)
                self._check(delivery, deadline, given_up)
        while producer.flush(_TICK):
            self._check(delivery, deadline, given_up)
        self._check(delivery)
        if is_transaction:
            producer.commit_transaction(max(_TICK, deadline - time.monotonic()))

    def _is_taken(self, producer: Producer, record: KafkaRecord, delivery: _Delivery) -> bool:
        """Hand the message to librdkafka; False if its queue is full."""
        report = partial(delivery.report, record)
        headers: Any = record.headers
        try:
            producer.produce(record.topic, record.value, record.key, headers=headers, on_delivery=report)
        except BufferError:
            return False
        except _library().KafkaException as error:
            if error.args[0].code() != _TOO_LARGE:
                raise
            raise NonRetryable(
                f"{cloudevents.shown(record.event)} is larger than message.max.bytes of the options"
            ) from None
        return True

    def _check(
        self, delivery: _Delivery, deadline: float = math.inf, given_up: threading.Event | None = None
    ) -> None:
        """Raise the first failure, or that the time is over."""
        if delivery.failed is not None:
            record, error = delivery.failed
            why = f"Kafka refuses {cloudevents.shown(record.event)}: {self._without_secrets(error.str())}"
            if error.code() == _TOO_LARGE:
                raise _BatchTooLarge(why)
            raise NonRetryable(why) if error.code() in _INVALID else ConnectionError(why)
        if given_up is not None and given_up.is_set():
            raise ConnectionError("the sink was told to stop")
        if time.monotonic() > deadline:
            last = f"; its last error: {self._trouble}" if self._trouble else ""
            raise ConnectionError(f"Kafka has not accepted all within {self._options.timeout:g} s{last}")

    def _opened(self, deadline: float) -> Producer:
        if self._producer is None:
            self._producer = self._new(self._options.brokers)
            if self._options.transactional_id is not None:
                self._producer.init_transactions(max(_TICK, deadline - time.monotonic()))
        return self._producer

    def _new(self, brokers: str) -> Producer:
        settings = {name: _setting(value) for name, value in self._options.options.items()}
        settings = {**_DEFAULTS, **settings, **_OURS, "error_cb": self._heard, "logger": _UNHEARD}
        if brokers:
            settings["bootstrap.servers"] = brokers
        if self.is_single:
            settings["batch.num.messages"] = 1
        if self._options.transactional_id is not None:
            settings["transactional.id"] = self._options.transactional_id
            # Without it librdkafka ends messages later than a transaction may last.
            del settings["message.timeout.ms"]
        producer: Producer = _library().Producer(settings)
        return producer

    def _heard(self, error: KafkaError) -> None:
        # That all brokers are down comes behind the reason of each.
        if error.code() != _ALL_BROKERS_DOWN or not self._trouble:
            self._trouble = self._without_secrets(error.str())

    def _without_secrets(self, error: object) -> str:
        text = str(error)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _library() -> Any:
    try:
        import confluent_kafka  # noqa: PLC0415 - the extra
    except ImportError:
        raise InvalidRequest(
            "a sink of the type kafka needs the extra: pip install 'progressor-engine[kafka]'", field="type"
        ) from None
    return confluent_kafka


def _setting(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _secrets(options: dict[str, Any]) -> list[str]:
    """Return the values that no text may show, the longest first."""
    found = {str(value) for name, value in options.items() if _SECRET.search(name)}
    return sorted((value for value in found if value), key=len, reverse=True)
