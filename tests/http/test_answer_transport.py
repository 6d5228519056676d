"""Answers on their connection: head and body leave in one piece, and the head of a stream at once."""

from __future__ import annotations

import asyncio

import pytest

from progressor.http.server.connections import AnswerTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
OF_STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Wire(asyncio.Transport):
    """The transport of a connection, which keeps what is written to it, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("body", [b"", b"12", b"x" * 1000])
def test_an_answer_is_one_piece(body: bytes) -> None:
    """A head and the body behind it are written once, and nothing of them again at the end."""
    wire = Wire()
    answer = AnswerTransport(wire)
    answer.write(HEAD)
    answer.write(body)
    assert wire.pieces == [HEAD + body]
    answer.flush()
    assert wire.pieces == [HEAD + body]


def test_a_large_body_is_not_copied() -> None:
    """A body that would be expensive to copy leaves behind its head."""
    wire, body = Wire(), b"x" * 1_000_000
    answer = AnswerTransport(wire)
    answer.write(HEAD)
    answer.write(body)
    assert wire.pieces == [HEAD, body]


def test_the_head_of_a_stream_leaves_at_once() -> None:
    """It does not wait for the first part, and no part is held, whatever it looks like."""
    wire = Wire()
    answer = AnswerTransport(wire)
    answer.write(OF_STREAM)
    assert wire.pieces == [OF_STREAM]
    answer.write(HEAD)
    answer.write(b"two")
    assert wire.pieces == [OF_STREAM, HEAD, b"two"]


def test_the_wish_for_the_body_leaves_at_once() -> None:
    """A peer that waits for 100 Continue is told to go on."""
    wire, go_on = Wire(), b"HTTP/1.1 100 Continue\r\n\r\n"
    answer = AnswerTransport(wire)
    answer.write(go_on)
    assert wire.pieces == [go_on]
    answer.write(HEAD)
    answer.write(b"12")
    assert b"".join(wire.pieces) == go_on + HEAD + b"12"


def test_a_head_leaves_before_its_connection_is_closed() -> None:
    """A close sends what is held, and the connection is seen as closing."""
    wire = Wire()
    answer = AnswerTransport(wire)
    answer.write(HEAD)
    answer.close()
    assert wire.pieces == [HEAD]
    assert answer.is_closing()


def test_nothing_is_written_to_a_connection_that_closes() -> None:
    """A head that is held when the connection is closed by its peer is dropped."""
    wire = Wire()
    answer = AnswerTransport(wire)
    answer.write(HEAD)
    wire.close()
    answer.flush()
    assert wire.pieces == []


def test_a_head_alone_is_sent_at_the_end() -> None:
    """An answer to HEAD has no body: it leaves before what follows on the connection, and once."""
    wire = Wire()
    answer = AnswerTransport(wire)
    answer.write(HEAD)
    answer.flush()
    answer.flush()
    assert wire.pieces == [HEAD]
