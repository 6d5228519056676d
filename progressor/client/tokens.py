"""The tokens of a database, for operators and for the server that admits their bearers.

Rule: a secret is handed out once, when it is made, and kept nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from progressor.acts import AuditVerb
from progressor.errors import InvalidRequest
from progressor.inputs import check_text
from progressor.node.node import Node
from progressor.rights import Bearer, Rights, Token, check_patterns, check_scopes

LONGEST = timedelta(days=3650)


class NewToken(NamedTuple):
    """A token that was just made, and the text that its bearer shows."""

    token: Token
    bearer: Bearer


class Tokens:
    """Bearer tokens of the HTTP API: made, listed, revoked and looked up in the database.

    Every method raises StorageUnavailable if PostgreSQL cannot be reached.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    async def create(
        self,
        name: str,
        *,
        scopes: Iterable[str],
        namespaces: Iterable[str],
        lifetime: timedelta | None,
    ) -> NewToken:
        """Make a token; `namespaces` are patterns in which * stands for any characters.

        `lifetime=None`: no end. Raise InvalidRequest for a bad name, scope or pattern, or for a lifetime
        that is not above 0 and at most ten years.
        """
        check_text("name", name)
        rights = Rights(check_scopes("scopes", scopes), check_patterns("namespaces", namespaces))
        if lifetime is not None and not timedelta() < lifetime <= LONGEST:
            raise InvalidRequest(
                f"lifetime must be more than nothing and at most {LONGEST.days} days, or None: no end",
                field="lifetime",
            )
        storage = await self._node.connected()
        act = self._node.act(AuditVerb.CREATE_TOKEN)
        while True:
            bearer = Bearer.drawn()
            token = await storage.create_token(bearer, name, rights, lifetime=lifetime, act=act)
            if token.has_secret(bearer.secret):
                return NewToken(token, bearer)

    async def listed(self) -> Sequence[Token]:
        """Return all tokens, oldest first, ended and revoked ones among them."""
        storage = await self._node.connected()
        return await storage.tokens()

    async def revoke(self, token_id: str) -> Token:
        """End a token now, and return it; a server may admit it for as long as it keeps what it has read.

        Raise InvalidRequest if there is no such token.
        """
        check_text("token_id", token_id)
        # A whole token counts as its id. No error repeats the text: it may hold the secret.
        whole = Bearer.read(token_id)
        storage = await self._node.connected()
        token = await storage.revoke_token(
            token_id if whole is None else whole.token_id, act=self._node.act(AuditVerb.REVOKE_TOKEN)
        )
        if token is None:
            raise InvalidRequest("token_id is that of no token here", field="token_id")
        return token

    async def find(self, token_id: str) -> Token | None:
        """Return a token as it is now; None if there is none."""
        storage = await self._node.connected()
        return await storage.find_token(token_id)

    async def note_use(self, token_id: str) -> None:
        """Note that a token is in use; most of the time that writes nothing."""
        storage = await self._node.connected()
        await storage.use_token(token_id)

    async def exist(self) -> bool:
        """Return whether any token was ever made in this database."""
        storage = await self._node.connected()
        return await storage.tokens_exist()
