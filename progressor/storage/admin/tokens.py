"""Bearer tokens: made, found, revoked, and their use noted.

Rule: a secret never comes here, only its hash. PostgreSQL's clock decides whether a token holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from progressor.acts import Act, Deed
from progressor.rights import Bearer, Rights, Scope, Token, hash_of
from progressor.storage.admin.audit import Audited
from progressor.storage.postgres.arrays import texts
from progressor.storage.rows import record_of
from progressor.storage.statements import Params, Results, Row

# The last use of a token is known to within this.
USE_GRANULARITY = timedelta(minutes=5)


class TokenStatements(Audited):
    """The statements on tokens."""

    async def create_token(
        self,
        bearer: Bearer,
        name: str,
        rights: Rights,
        *,
        lifetime: timedelta | None,
        act: Act | None = None,
        now: datetime | None = None,
    ) -> Token:
        """Store a token with the hash of its secret; if the id is taken, return the token that has it."""
        by_id: Params = {"token_id": bearer.token_id, "now": now}
        making = {
            **by_id,
            "secret_hash": hash_of(bearer.secret),
            "name": name,
            "scopes": texts(sorted(rights.scopes)),
            "namespaces": texts(rights.namespaces),
            "lifetime": lifetime,
        }
        statements = {"create_token": making, "find_tokens": by_id}

        def made(found: Results) -> Deed | None:
            (token,) = map(_token_of, found["find_tokens"])
            return _deed_on(token) if token.has_secret(bearer.secret) else None

        results = await self._acted("create_token", statements, act, made, now=now)
        (row,) = results["find_tokens"]
        return _token_of(row)

    async def find_token(self, token_id: str, *, now: datetime | None = None) -> Token | None:
        """Return a token by its id, whether it holds or not; None if there is none."""
        rows = await self._rows("find_tokens", token_id=token_id, now=now)
        return _token_of(rows[0]) if rows else None

    async def tokens(self, *, now: datetime | None = None) -> Sequence[Token]:
        """Return all tokens, oldest first."""
        return [_token_of(row) for row in await self._rows("find_tokens", token_id=None, now=now)]

    async def revoke_token(
        self, token_id: str, *, act: Act | None = None, now: datetime | None = None
    ) -> Token | None:
        """Revoke a token, once, and return it; None if there is none."""
        params = {"token_id": token_id, "now": now}
        statements = dict.fromkeys(("revoke_token", "find_tokens"), params)

        def revoked(found: Results) -> Deed | None:
            return _deed_on(_token_of(found["find_tokens"][0])) if found["revoke_token"] else None

        results = await self._acted("revoke_token", statements, act, revoked, now=now)
        rows = results["find_tokens"]
        return _token_of(rows[0]) if rows else None

    async def use_token(self, token_id: str, *, now: datetime | None = None) -> None:
        """Note that a token is in use, unless the last note is younger than USE_GRANULARITY."""
        await self._rows("use_token", token_id=token_id, granularity=USE_GRANULARITY, now=now)

    async def tokens_exist(self) -> bool:
        """Return whether any token was ever made in this database."""
        (row,) = await self._rows("tokens_exist")
        return bool(row["found"])


def _deed_on(token: Token) -> Deed:
    return Deed(subject=f"token {token.token_id}", detail=token.name)


def _token_of(row: Row) -> Token:
    # Scopes that only a newer release knows are left out.
    known = frozenset(Scope(name) for name in row["scopes"] if name in tuple(Scope))
    rights = Rights(known, tuple(row["namespaces"]))
    return record_of(Token, row, rights=rights, left=row["time_left"])
