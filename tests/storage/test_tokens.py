"""Tokens: kept by their hash, found, revoked once, and seldom written to."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from progressor import Client
from progressor.errors import InvalidRequest
from progressor.rights import EVERYTHING, Bearer, Rights, Scope
from progressor.storage.admin.tokens import USE_GRANULARITY
from progressor.storage.operations import Storage
from tests.support import SECOND, T0, LossyConnections

RIGHTS = Rights(frozenset({Scope.BULK, Scope.STATE_READ}), ("billing.*", "shop"))


async def test_a_token_is_found_as_it_was_made(storage: Storage) -> None:
    """With its rights and its end; for how long it holds is told by PostgreSQL's clock."""
    bearer = Bearer.drawn()
    made = await storage.create_token(bearer, "web", RIGHTS, lifetime=60 * SECOND, now=T0)
    assert (made.token_id, made.name, made.rights) == (bearer.token_id, "web", RIGHTS)
    assert (made.created_at, made.expires_at, made.left) == (T0, T0 + 60 * SECOND, 60 * SECOND)
    assert (made.revoked_at, made.last_used_at, made.status) == (None, None, "live")
    assert made.has_secret(bearer.secret)
    later = await storage.find_token(bearer.token_id, now=T0 + 60 * SECOND)
    assert later is not None
    assert (later.left, later.status) == (timedelta(), "expired")
    assert await storage.find_token(Bearer.drawn().token_id) is None


async def test_without_an_end(storage: Storage) -> None:
    """Nothing is left to count."""
    bearer = Bearer.drawn()
    made = await storage.create_token(bearer, "web", RIGHTS, lifetime=None, now=T0)
    assert (made.expires_at, made.left) == (None, None)


async def test_all_are_listed_oldest_first(storage: Storage) -> None:
    """Those that hold no more among them."""
    assert not await storage.tokens_exist()
    drawn = [Bearer.drawn() for _ in range(3)]
    for number, bearer in enumerate(drawn):
        await storage.create_token(bearer, "same name", RIGHTS, lifetime=SECOND, now=T0 + number * SECOND)
    await storage.revoke_token(drawn[1].token_id)
    listed = await storage.tokens(now=T0 + SECOND)
    assert [token.token_id for token in listed] == [bearer.token_id for bearer in drawn]
    assert [token.status for token in listed] == ["expired", "revoked", "live"]
    assert await storage.tokens_exist()


async def test_revoked_once(storage: Storage) -> None:
    """The first time stays; a token that is not there is None."""
    bearer = Bearer.drawn()
    await storage.create_token(bearer, "web", RIGHTS, lifetime=None, now=T0)
    first = await storage.revoke_token(bearer.token_id, now=T0 + SECOND)
    again = await storage.revoke_token(bearer.token_id, now=T0 + 2 * SECOND)
    assert first is not None
    assert again is not None
    assert first.revoked_at == again.revoked_at == T0 + SECOND
    assert await storage.revoke_token("nobody") is None


async def test_use_is_noted_seldom(storage: Storage, dsn: str) -> None:
    """A row is written again only when the last note is old."""
    bearer = Bearer.drawn()
    await storage.create_token(bearer, "web", RIGHTS, lifetime=None, now=T0)
    for moment, noted in (
        (T0, T0),
        (T0 + USE_GRANULARITY, T0),
        (T0 + USE_GRANULARITY + SECOND, T0 + USE_GRANULARITY + SECOND),
    ):
        await storage.use_token(bearer.token_id, now=moment)
        found = await storage.find_token(bearer.token_id)
        assert found is not None
        assert found.last_used_at == noted


async def test_made_once_though_the_answer_was_lost(dsn: str) -> None:
    """A repetition finds what the first try has made."""
    connections = LossyConnections(dsn, limit=1)
    storage = Storage(connections, patience=10 * SECOND)
    connections.late = 1
    bearer = Bearer.drawn()
    made = await storage.create_token(bearer, "web", RIGHTS, lifetime=None)
    assert made.has_secret(bearer.secret)
    assert len(await storage.tokens()) == 1
    await connections.close()


async def test_an_id_that_is_taken_is_not_written_over(storage: Storage) -> None:
    """What comes back has another secret: the client draws again."""
    bearer = Bearer.drawn()
    await storage.create_token(bearer, "first", RIGHTS, lifetime=None)
    other = await storage.create_token(
        Bearer(bearer.token_id, "0" * 64), "second", EVERYTHING, lifetime=None
    )
    assert (other.name, other.rights) == ("first", RIGHTS)
    assert not other.has_secret("0" * 64)


async def test_a_scope_of_a_newer_release_means_nothing(storage: Storage, dsn: str) -> None:
    """A token that has it keeps what is known of it."""
    bearer = Bearer.drawn()
    await storage.create_token(bearer, "web", RIGHTS, lifetime=None)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE progressor.tokens SET scopes = scopes || '{feed:read}'")
    found = await storage.find_token(bearer.token_id)
    assert found is not None
    assert found.rights == RIGHTS


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes"),
        ({"namespaces": []}, "namespaces"),
        ({"namespaces": ["a b"]}, "namespaces"),
        ({"lifetime": timedelta()}, "lifetime"),
        ({"lifetime": timedelta(days=4000)}, "lifetime"),
    ],
)
async def test_wrong_input_writes_nothing(dsn: str, wrong: dict[str, object], field: str) -> None:
    """It is refused by the name of its field."""
    right = {"name": "web", "scopes": ["bulk"], "namespaces": ["*"], "lifetime": None}
    async with Client(dsn, signals=False) as client:
        with pytest.raises(InvalidRequest) as caught:
            await client.tokens.create(**{**right, **wrong})  # type: ignore[arg-type]
        assert caught.value.field == field
        assert list(await client.tokens.listed()) == []


async def test_a_whole_token_is_revoked_and_never_repeated(dsn: str) -> None:
    """Who hands in all of it means it; an error does not say what was handed in."""
    async with Client(dsn, signals=False) as client:
        token, bearer = await client.tokens.create(
            "web", scopes=["bulk"], namespaces=["*"], lifetime=timedelta(days=1)
        )
        stranger = Bearer.drawn()
        with pytest.raises(InvalidRequest) as caught:
            await client.tokens.revoke(stranger.text)
        assert stranger.secret not in str(caught.value)
        assert (await client.tokens.revoke(bearer.text)).token_id == token.token_id
        found = await client.tokens.find(token.token_id)
        assert found is not None
        assert found.status == "revoked"
