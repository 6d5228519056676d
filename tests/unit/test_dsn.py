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


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://app:secret@one:abc/shop",
        "postgresql://one:5432x/shop",
        "postgresql://app@one:1,two:x/shop",
        # The password has a slash: nothing tells this from a host and its port.
        "postgresql://app:secret/1",
    ],
)
def test_a_port_that_is_no_number(dsn: str) -> None:
    """It is named as such, with what else may have led to it, and without what stands there."""
    with pytest.raises(
        InvalidRequest, match=r"^the port of the database URL must be a number\. "
    ) as caught:
        parsed(dsn)
    assert not any(part in str(caught.value) for part in ("secret", "abc", "5432x", "one", "app"))


@pytest.mark.parametrize(
    "dsn",
    ["postgresql://app:secret\udcff@one/shop", "host=one password=secret\udcff", "postgresql://%ff@one"],
)
def test_what_is_not_utf_8(dsn: str) -> None:
    """Bytes of the environment become lone surrogates: no error keeps the text that has them."""
    with pytest.raises(InvalidRequest, match="not one that PostgreSQL understands") as caught:
        parsed(dsn)
    assert caught.value.__suppress_context__
