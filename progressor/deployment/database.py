"""Which database a command or an example works on: the configured one, or the embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote

from progressor.deployment.settings import Settings
from progressor.embedded import EmbeddedPostgres
from progressor.errors import InvalidRequest
from progressor.storage import parsed


class Database(NamedTuple):
    """A DSN, which holds a secret, and a name for it that holds none."""

    dsn: str
    shown: str


@contextmanager
def database(settings: Settings) -> Iterator[Database]:
    """The database of these settings, for as long as the block runs."""
    if settings.database_url is not None:
        dsn = settings.database_url.get_secret_value()
        yield Database(dsn, _without_secrets(dsn))
        return
    embedded = _embedded(settings)
    with embedded as dsn:
        yield Database(dsn, f"embedded PostgreSQL in {embedded.home}")


@contextmanager
def existing_database(settings: Settings) -> Iterator[Database]:
    """The same for who only asks: an embedded database that nobody made answers nothing."""
    if settings.database_url is None and not _embedded(settings).is_begun:
        raise InvalidRequest(
            "there is no database: PROGRESSOR_DATABASE_URL is not set, and nobody made an embedded one in "
            f"{_embedded(settings).home}: each folder has its own, so ask in that of `progressor dev`",
            field="database_url",
        )
    with database(settings) as found:
        yield found


def _embedded(settings: Settings) -> EmbeddedPostgres:
    return EmbeddedPostgres(settings.data_dir, bin_dir=settings.postgres_bin_dir)


@contextmanager
def development_database() -> Iterator[str]:
    """The DSN of a database to try things on, migrated, for as long as the block runs.

    It is that of PROGRESSOR_DATABASE_URL or, if that is not set, an embedded PostgreSQL.
    """
    from progressor.storage import migrations  # noqa: PLC0415 - with alembic, which few need

    settings = Settings()
    with database(settings) as (dsn, _):
        migrations.upgrade(dsn, schema=settings.database_schema)
        yield dsn


def _without_secrets(dsn: str) -> str:
    """User, host, port and name: what tells databases apart, and nothing else."""
    parts = parsed(dsn)
    user = f"{quote(str(parts['user']))}@" if "user" in parts else ""
    port = f":{parts['port']}" if "port" in parts else ""
    return f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"
