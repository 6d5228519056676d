"""Databases and servers that will not do are refused before anything is written to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from progressor import Client, Engine, Namespace, SchemaMismatch, StorageUnavailable
from progressor.storage import migrations
from progressor.storage.doctor import examine
from progressor.storage.postgres import first_connection, session_setup
from tests.conftest import Databases


async def enter_client(dsn: str) -> None:
    async with Client(dsn):
        pass


async def enter_engine(dsn: str) -> None:
    async with Engine(dsn, [Namespace("shop")], signals=False):
        pass


ACTS: dict[str, Callable[[str], Any]] = {
    "migrate": migrations.upgrade,
    "check": migrations.check,
    "doctor": examine,
    "client": lambda dsn: asyncio.run(enter_client(dsn)),
    "engine": lambda dsn: asyncio.run(enter_engine(dsn)),
}


@pytest.fixture(params=["LATIN1", "EUC_JP", "SQL_ASCII"])
def narrow(databases: Databases, server: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """An encoding, and a database that has it."""
    name = f"prg_test_{request.param.lower()}_{id(request)}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C'").format(
                sql.Identifier(name), sql.Literal(request.param)
            )
        )
    yield request.param, databases.dsn(name)
    databases.drop(name)


@pytest.mark.parametrize("act", ACTS)
def test_a_database_that_is_not_utf8(narrow: tuple[str, str], act: str) -> None:
    """It could not keep every text: refused, whatever the encoding that the client has by default."""
    encoding, dsn = narrow
    with pytest.raises(SchemaMismatch, match=f"encoding {encoding}.*ENCODING 'UTF8'"):
        ACTS[act](dsn)
    with psycopg.connect(dsn) as connection:
        (found,) = connection.execute("SELECT to_regnamespace('progressor')").fetchone() or ()
        assert found is None


@pytest.mark.parametrize("act", ACTS)
def test_a_database_that_does_not_exist(databases: Databases, act: str) -> None:
    """It is named, with its server and with how to make it; no password is."""
    parts = conninfo_to_dict(databases.dsn(""))
    dsn = make_conninfo("", **{**parts, "dbname": "no such", "password": "secret"})
    with pytest.raises(SchemaMismatch, match=r"^the database 'no such' does not exist on ") as refused:
        ACTS[act](dsn)
    assert f":{parts.get('port', 5432)}: correct its name" in str(refused.value)
    assert "(`createdb 'no such'`)" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_database_that_may_exist(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooler has names of its own, and a server may refuse to be asked: nothing is concluded."""
    missing = databases.dsn("no_such")
    with monkeypatch.context() as pooled:
        pooled.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda _: 1))
        with pytest.raises(StorageUnavailable, match="cannot be reached"):
            migrations.check(missing)
    monkeypatch.setattr(first_connection, "_ALWAYS_THERE", "no such either")
    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        migrations.check(missing)


@pytest.mark.parametrize("act", ACTS)
def test_a_server_that_is_too_old(dsn: str, act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version, and the oldest that will do, are named."""
    monkeypatch.setattr(session_setup, "OLDEST_SERVER", 99)
    with pytest.raises(SchemaMismatch, match="this release needs 99 or newer"):
        ACTS[act](dsn)
