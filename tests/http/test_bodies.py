"""Bodies: arguments are passed on without white space between tokens; large answers leave in pieces."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given, strategies as st
from starlette.responses import Response
from starlette.types import Message

from progressor import Client
from progressor.errors import InvalidRequest
from progressor.handlers.codec import decode
from progressor.http.server import bodies, request_body
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.app import make_app
from tests.open_access import OpenAccess

# What looks like the end of a string, like white space, or like what stands for an escape meanwhile.
_TEXTS = st.text(st.sampled_from('ab"\\ \t\r\n/\0\1\x7fü€😀{}[],:'), max_size=12)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=20,
)
_SPACES = st.text(st.sampled_from(" \t\r\n"), max_size=3)
# A string of its own, or white space outside of any.
_TOKENS = re.compile(rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')


@given(_VALUES, _SPACES, _SPACES, st.sampled_from([None, 1, "\t"]), st.booleans(), st.integers(1, 9))
def test_nothing_but_white_space_goes(
    value: Any, before: str, behind: str, indent: Any, ascii_only: bool, piece: int
) -> None:
    """Wherever the pieces end that are looked at in turn."""
    written = json.dumps(
        value, indent=indent, ensure_ascii=ascii_only, separators=(f"{before},", f":{behind}")
    )
    text = (behind + written + before).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_body, "_PIECE", piece)
        plain = request_body.without_space(text)
    assert plain == _TOKENS.sub(rb"\1", text)
    assert json.loads(plain) == value


@pytest.mark.parametrize("character", ["\0", "\1", "\t"])
def test_a_control_character_is_not_json(character: str) -> None:
    """So two of them may stand for something else while white space is taken out."""
    for text in (f'"{character}"', f'{{"{character}": 1}}', f'"\\{character}"'):
        with pytest.raises(InvalidRequest, match="is not JSON"):
            decode(text.encode())


def test_a_number_keeps_its_digits() -> None:
    """And its exponent."""
    assert request_body.without_space(b" [ 1.10, -0e+07 ] ") == b"[1.10,-0e+07]"


async def test_a_body_may_take_long_as_long_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is bounded is the time between two of its pieces."""
    loop = asyncio.get_running_loop()
    clock, later = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: clock() + later)
    pieces = iter([b"a", b"b", b"c", b"d"])

    async def receive() -> Message:
        nonlocal later
        later += 0.9 * request_body._PATIENCE_SECONDS
        # A time-out that has passed ends this one here.
        for _ in range(3):
            await asyncio.sleep(0)
        piece = next(pieces, b"")
        return {"type": "http.request", "body": piece, "more_body": piece != b""}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    app = make_app(Client("postgresql://nowhere"), access=OpenAccess())
    scope = {"type": "http", "method": "POST", "headers": [], "app": app, "state": {}}
    assert await request_body.read_body(ApiRequest(scope, receive, send)) == b"abcd"


async def test_a_string_without_end_is_refused_as_soon_as_any(api: httpx.AsyncClient) -> None:
    """However many quotes of it are escaped: the time that takes grows as the body does, not faster."""
    body = b'"' + b'\\"' * 500_000
    headers = {"Content-Type": "application/json"}
    path = "/v1/namespaces/shop.order/processes/o1/calls/echo"
    answer = await api.post(path, content=body, headers=headers)
    assert (answer.status_code, answer.json()["field"]) == (422, "args")


ANSWERS: dict[str, Callable[[], Response]] = {
    "a value": lambda: bodies.shown({"text": "x" * 300_000}),
    "bytes": lambda: bodies.answer(b"x" * 300_000),
    "a list": lambda: bodies.Listed("all", iter(["x" * 50_000] * 6), {"cursor": None}),
}


class Peer:
    """A peer that takes so many pieces of an answer, and then no more."""

    def __init__(self, takes: float) -> None:
        self._takes = takes
        self.pieces: list[bytes] = []
        self.length: int | None = None
        self.has_all = False

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.length = int(dict(message["headers"]).get(b"content-length", b"0")) or None
            return
        if len(self.pieces) >= self._takes:
            await asyncio.Event().wait()
        self.pieces.append(message["body"])
        self.has_all = not message.get("more_body", False)

    async def receive(self) -> Any:
        await asyncio.Event().wait()


@pytest.mark.parametrize("what", ANSWERS)
async def test_a_large_answer_leaves_piece_by_piece(what: str) -> None:
    """As its peer takes it: what has not left yet is still counted as memory of its request."""
    peer = Peer(math.inf)
    await ANSWERS[what]()({"type": "http"}, peer.receive, peer.send)
    assert peer.has_all
    assert len(peer.pieces) > 2
    assert max(map(len, peer.pieces)) <= 2 * bodies.PIECE
    assert peer.length in (None, sum(map(len, peer.pieces)))


@pytest.mark.parametrize("what", ANSWERS)
async def test_a_peer_that_takes_nothing_more_is_left(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no defect: the answer ends, and its connection with it."""
    monkeypatch.setattr(bodies, "_PATIENCE", 0.05)
    peer = Peer(1)
    await asyncio.wait_for(ANSWERS[what]()({"type": "http"}, peer.receive, peer.send), 20)
    assert len(peer.pieces) == 1
    assert not peer.has_all
