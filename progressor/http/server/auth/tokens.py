"""Static tokens: looked up in the database, and kept for a moment.

Rule: a kept token counts as old as the moment before its read began. So a revoked token admits nobody for
longer than it is kept, and an ended one admits nobody at all after its end.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable
from datetime import timedelta
from typing import NamedTuple, TypeVar

from progressor.client.tokens import Tokens
from progressor.errors import StorageUnavailable
from progressor.http.server.auth.principals import Principal, unknown
from progressor.rights import Bearer, Token

_MOST_KEPT = 10_000
# Seconds between two notes that a token is in use; the database writes none sooner.
_NOTED_SECONDS = 300.0
# Seconds for a look at the database; short enough that the caller is still there for the error.
_LOOK_SECONDS = 10.0


class _CachedToken(NamedTuple):
    token: Token | None
    read_at: float
    noted_at: float | None


class TokenAuthenticator:
    """The authenticator of static tokens; a revoked one is admitted for at most `kept_for`."""

    def __init__(self, tokens: Tokens, *, kept_for: timedelta) -> None:
        self._tokens = tokens
        self._seconds = kept_for.total_seconds()
        self._kept: OrderedDict[str, _CachedToken] = OrderedDict()
        self._are_needed: bool | None = None
        self._needed_at = 0.0

    async def are_needed(self) -> bool:
        """Return whether any token was ever made; once that is so, callers need one."""
        if not self._are_needed and self._needed_at + self._seconds <= time.monotonic():
            asked_at = time.monotonic()
            self._are_needed = await _looked(self._tokens.exist())
            self._needed_at = asked_at
        return bool(self._are_needed)

    async def caller(self, text: str) -> Principal:
        """Return the bearer of this token; raise Refusal if it does not hold."""
        bearer = Bearer.read(text)
        kept = None if bearer is None else await self._current(bearer.token_id)
        if bearer is None or kept is None or kept.token is None or not kept.token.has_secret(bearer.secret):
            raise unknown("there is no such token")
        token = kept.token
        if token.revoked_at is not None:
            raise unknown("this token was revoked")
        if token.left is not None and time.monotonic() - kept.read_at >= token.left.total_seconds():
            raise unknown("this token has ended")
        await self._note(token.token_id, kept)
        return Principal(f"token {token.token_id}", token.rights, f"token {token.name}")

    async def _current(self, token_id: str) -> _CachedToken:
        kept = self._kept.get(token_id)
        if kept is not None and time.monotonic() - kept.read_at < self._seconds:
            return kept
        read_at = time.monotonic()
        token = await _looked(self._tokens.find(token_id))
        noted_at = None if kept is None else kept.noted_at
        return self._keep(token_id, _CachedToken(token, read_at, noted_at))

    def _keep(self, token_id: str, kept: _CachedToken) -> _CachedToken:
        self._kept[token_id] = kept
        self._kept.move_to_end(token_id)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return kept

    async def _note(self, token_id: str, kept: _CachedToken) -> None:
        """Note that a token is in use, once in a while."""
        now = time.monotonic()
        if kept.noted_at is None or now - kept.noted_at >= _NOTED_SECONDS:
            # Kept before it is written, so that of many requests at once only one writes.
            self._keep(token_id, kept._replace(noted_at=now))
            await _looked(self._tokens.note_use(token_id))


T = TypeVar("T")


async def _looked(look: Awaitable[T]) -> T:
    """Return what a look at the database finds; raise StorageUnavailable if it takes too long."""
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            return await look
    except TimeoutError:
        raise StorageUnavailable(
            f"PostgreSQL did not answer within {_LOOK_SECONDS:g} s: the token could not be checked, "
            "and nothing was done"
        ) from None
