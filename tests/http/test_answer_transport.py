"""Answers on their connection: head and body leave in one piece, and a head alone is not held for long."""

from __future__ import annotations

import asyncio

import pytest

from progressor.http.server.connections import AnswerTransport

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


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


def answer_on(wire: Wire) -> AnswerTransport:
    return AnswerTransport(wire, asyncio.get_running_loop())


@pytest.mark.parametrize("body", [b"", b"12", b"x" * 1000])
async def test_an_answer_is_one_piece(body: bytes) -> None:
    """A head and the body behind it are written once, and nothing of them again later."""
    wire = Wire()
    answer = answer_on(wire)
    answer.write(HEAD)
    answer.write(body)
    assert wire.pieces == [HEAD + body]
    await asyncio.sleep(0)
    assert wire.pieces == [HEAD + body]


async def test_a_large_body_is_not_copied() -> None:
    """A body that would be expensive to copy leaves behind its head."""
    wire, body = Wire(), b"x" * 1_000_000
    answer = answer_on(wire)
    answer.write(HEAD)
    answer.write(body)
    assert wire.pieces == [HEAD, body]


async def test_a_head_without_a_body_leaves_in_the_next_turn() -> None:
    """The head of a stream does not wait for its first part, and parts are not held."""
    wire = Wire()
    answer = answer_on(wire)
    answer.write(HEAD)
    assert wire.pieces == []
    await asyncio.sleep(0)
    assert wire.pieces == [HEAD]
    answer.write(b"one")
    answer.write(b"two")
    assert wire.pieces == [HEAD, b"one", b"two"]


async def test_a_head_leaves_before_its_connection_is_closed() -> None:
    """A close sends what is held, and the connection is seen as closing."""
    wire = Wire()
    answer = answer_on(wire)
    answer.write(HEAD)
    answer.close()
    assert wire.pieces == [HEAD]
    assert answer.is_closing()


async def test_nothing_is_written_to_a_connection_that_closes() -> None:
    """A head that is held when the connection is closed by its peer is dropped."""
    wire = Wire()
    answer_on(wire).write(HEAD)
    wire.close()
    await asyncio.sleep(0)
    assert wire.pieces == []


async def test_a_head_alone_can_be_sent_at_once() -> None:
    """Before what follows it on the connection; and not once more in the next turn."""
    wire = Wire()
    answer = answer_on(wire)
    answer.write(HEAD)
    answer.flush()
    await asyncio.sleep(0)
    assert wire.pieces == [HEAD]
