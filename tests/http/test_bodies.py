"""Arguments are passed on without the white space between their tokens, whatever their strings hold."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
import pytest
from hypothesis import given, strategies as st
from starlette.types import Message

from progressor import Client
from progressor.errors import InvalidRequest
from progressor.handlers.codec import decode
from progressor.http.server import request_body
from progressor.http.server.api_request import ApiRequest
from progressor.http.server.app import make_app
from progressor.http.server.auth.scopes import OpenAccess

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
