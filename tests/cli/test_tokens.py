"""The commands token create, token list, token revoke."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from progressor.rights import Bearer, Scope, hash_of
from tests.cli.conftest import Ended

Command = Callable[..., Ended]
SHOP = ("token", "create", "web-shop", "--scope", "processes:read,bulk", "-n", "billing.*", "-n", "shop")


def test_from_creation_to_revocation(progressor: Command, dsn: str) -> None:
    """The token is alone on stdout, once; the table has the hash of its secret and nothing else of it."""
    env = {"PROGRESSOR_DATABASE_URL": dsn}
    made = progressor(*SHOP, "--expires", "12h", **env)
    bearer = Bearer.read(made.out.strip())
    assert bearer is not None
    assert bearer.secret not in made.err
    with psycopg.connect(dsn) as connection:
        (row,) = connection.execute(
            "SELECT secret_hash, expires_at - created_at = interval '12 hours', t::text "
            "FROM progressor.tokens AS t"
        ).fetchall()
    assert row[:2] == (hash_of(bearer.secret), True)
    assert bearer.secret not in row[2]
    shown = progressor("token", "list", **env)
    assert bearer.token_id in shown.out
    assert bearer.secret not in shown.out
    (listed,) = progressor("token", "list", "--json", **env).json
    assert listed["scopes"] == ["bulk", "processes:read"]
    assert listed["namespaces"] == ["billing.*", "shop"]
    assert (listed["name"], listed["status"]) == ("web-shop", "live")
    assert not {"secret", "secret_hash", "token"} & {*listed}
    assert progressor("token", "revoke", bearer.token_id, **env).status == 2
    assert progressor("token", "revoke", bearer.token_id, "--yes", **env).status == 0
    assert progressor("token", "list", "--json", **env).json[0]["status"] == "revoked"


def test_machines_get_one_object(progressor: Command, dsn: str) -> None:
    """With the token in it; `all` is every scope that there is."""
    command = ("token", "create", "ops", "--scope", "all", "-n", "*", "--expires", "never", "--json")
    made = progressor(*command, PROGRESSOR_DATABASE_URL=dsn)
    assert Bearer.read(made.json["token"]) is not None
    assert made.json["scopes"] == sorted(Scope)
    assert made.json["expires_at"] is None


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--expires", "soon"), "--expires"),
        (("--expires", "0d"), "it must be more than nothing"),
        (("--scope", "root"), "scopes must be some of "),
        (("-n", "b l"), "namespaces must be names"),
    ],
)
def test_what_is_wrong_is_named(progressor: Command, dsn: str, more: tuple[str, str], says: str) -> None:
    """And nothing is made."""
    env = {"PROGRESSOR_DATABASE_URL": dsn, "COLUMNS": "300"}
    wrong = progressor(*SHOP, *more, **env)
    assert (wrong.status, says in wrong.err, wrong.out) == (2, True, "")
    assert progressor("token", "list", "--json", **env).json == []


@pytest.mark.parametrize("command", ["create", "list", "revoke"])
def test_each_help_has_an_example(progressor: Command, command: str) -> None:
    """That begins as one would type it."""
    assert f"progressor token {command}" in " ".join(progressor("token", command, "--help").out.split())
