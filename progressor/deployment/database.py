"""The database of a command or an example: the configured one, or the embedded one."""

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
    """A DSN, which may hold a password, and a name to show in its place, which holds none."""

    dsn: str
    shown: str


@contextmanager
def database(settings: Settings) -> Iterator[Database]:
    """Yield the database of these settings; an embedded server runs for as long as the block."""
    if settings.database_url is not None:
        dsn = settings.database_url.get_secret_value()
        yield Database(dsn, _without_secrets(dsn))
        return
    embedded = _embedded(settings)
    with embedded as dsn:
        yield Database(dsn, f"embedded PostgreSQL in {embedded.home}")


@contextmanager
def existing_database(settings: Settings) -> Iterator[Database]:
    """Yield the database as `database` does; InvalidRequest if it is an embedded one that is not made."""
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
    """Yield the DSN of a migrated database to try things on, for as long as the block runs.

    It is that of PROGRESSOR_DATABASE_URL or, if that is not set, of an embedded PostgreSQL. Raises
    StorageUnavailable or SchemaMismatch if it cannot be used, InvalidRequest for a wrong setting.
    """
    from progressor.storage import migrations  # noqa: PLC0415 - it imports alembic, which few need

    settings = Settings()
    with database(settings) as (dsn, _):
        migrations.upgrade(dsn, schema=settings.database_schema)
        yield dsn


def _without_secrets(dsn: str) -> str:
    """Return a URL with user, host, port and name alone: they tell databases apart, and are no secrets."""
    parts = parsed(dsn)
    user = f"{quote(str(parts['user']))}@" if "user" in parts else ""
    port = f":{parts['port']}" if "port" in parts else ""
    return f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"
