"""Connection strings: an error tells nothing of a password."""

from __future__ import annotations

import pytest

from progressor.errors import InvalidRequest
from progressor.storage.postgres.dsn import parsed

PASSWORDS = ["a@b1", "a/b1", "a@b1@c2", "a/b1/c2", "a%b1", "a b1"]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("driver", ["postgresql", "postgresql+psycopg"])
def test_a_password_that_is_not_encoded(password: str, driver: str) -> None:
    """It cuts the URL in wrong places: said before PostgreSQL is asked, and without any part of it."""
    with pytest.raises(InvalidRequest) as caught:
        parsed(f"{driver}://app:{password}@127.0.0.1:5432/shop", field="database_url")
    assert caught.value.field == "database_url"
    assert not {"b1", "c2", "127.0.0.1", "app"} & set(str(caught.value).replace("/", " ").split())


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://app:a%40b%2F1@127.0.0.1:5432/shop",
        "postgresql://app:secret@one:5432,two:5433/shop?target_session_attrs=any",
        "postgresql://app@one,two/shop",
        "postgresql:///shop?host=%2Ftmp",
        "postgresql:///shop?host=@progressor",
        "host=/tmp dbname=a@b password=a@b/c",
        "postgresql://",
    ],
)
def test_what_is_well_written(dsn: str) -> None:
    """It is taken as it is: several hosts, sockets, key=value."""
    assert isinstance(parsed(dsn), dict)
