"""The mock cluster of librdkafka: a broker in this OS process that speaks Kafka's protocol over TCP.

It comes with confluent-kafka; its functions are called through ctypes, as Python has none for it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest

PRODUCE = 0
"""The number of the request Produce in the protocol."""
TRANSPORT = -195
"""The error with which the mock broker closes the connection instead of answering."""


class MockKafka:
    """A cluster of one broker, on a port of its own."""

    def __init__(self, library: ctypes.CDLL, cluster: ctypes.c_void_p) -> None:
        self._library, self._cluster = library, cluster
        self.brokers: str = library.rd_kafka_mock_cluster_bootstraps(cluster).decode()

    def create(self, topic: str, partitions: int = 3) -> None:
        """Make a topic."""
        assert not self._library.rd_kafka_mock_topic_create(
            self._cluster, topic.encode(), ctypes.c_int(partitions), ctypes.c_int(1)
        )

    def stop(self) -> None:
        """Close all connections, and take no others."""
        assert not self._library.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def start(self) -> None:
        """Take connections again; what was written is still there."""
        assert not self._library.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def answer(self, *errors: int) -> None:
        """Answer the next Produce requests with these; 0 is written and accepted."""
        listed = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(PRODUCE), ctypes.c_size_t(len(errors)), listed
        )

    def hold_answers(self, milliseconds: int) -> None:
        """Write what comes, but answer so much later."""
        self._library.rd_kafka_mock_broker_set_rtt(self._cluster, 1, milliseconds)


@contextmanager
def mock_kafka() -> Iterator[MockKafka]:
    """A fresh cluster; its topics are made at their first use, with four partitions."""
    library = _library()
    error = ctypes.create_string_buffer(512)
    config = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(config, b"log_level", b"0", error, len(error))
    client = ctypes.c_void_p(library.rd_kafka_new(0, config, error, len(error)))
    assert client.value, error.value
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(client, 1))
    try:
        yield MockKafka(library, cluster)
    finally:
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(client)


def _library() -> ctypes.CDLL:
    """The librdkafka that confluent-kafka has loaded."""
    assert confluent_kafka.libversion()
    maps = Path("/proc/self/maps")
    found = re.search(r"/\S*librdkafka\S*", maps.read_text() if maps.exists() else "")
    if found is None:
        pytest.skip("librdkafka is linked so that its mock cluster cannot be called")
    library = ctypes.CDLL(found[0])
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library
