"""A database that others use too: their tables and migrations are theirs, ours are ours."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config

from progressor import Engine, Namespace, Process
from progressor.errors import InvalidRequest, SchemaMismatch
from progressor.storage import migrations
from progressor.storage.doctor import examine

_ENV = """
from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection)
with context.begin_transaction():
    context.run_migrations()
"""

_REVISION = """
import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade():
    for name in ("events", "tasks", "processes", "running"):
        op.create_table(name, sa.Column("mine", sa.Text()))
        op.execute(f"INSERT INTO {name} VALUES ('{name} of the application')")
"""


class Application:
    """An application with an Alembic of its own, whose revision has the name of ours."""

    def __init__(self, folder: Path, dsn: str) -> None:
        (folder / "versions").mkdir()
        (folder / "env.py").write_text(_ENV)
        (folder / "versions" / "0001_tables.py").write_text(_REVISION)
        self._folder, self._dsn = folder, dsn

    def migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(self._folder))
        with migrations.connect(self._dsn) as connection, connection.begin():
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def rows(self) -> dict[str, list[str]]:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            return {
                name: [row[0] for row in connection.execute(f"SELECT mine FROM public.{name}")]
                for name in ("events", "tasks", "processes", "running")
            }


def counters() -> Namespace:
    counters = Namespace("counters")

    @counters.init
    async def open_(process: Process[int], args: int) -> None:
        process.emit("opened")

    @counters.call
    async def add(process: Process[int], args: int) -> int:
        process.emit("added", by=args)
        return args

    return counters


async def use(dsn: str, **options: str) -> None:
    async with Engine(dsn, [counters()], **options) as engine:
        await engine.client.start("counters", "a", 1)
        assert await engine.client.call("counters", "a", "add", 2) == 2
        process = await engine.client.get("counters", "a")
        assert [event.name for event in process.history] == ["opened", "added"]
        assert [each.status for each in await engine.client.trace("counters", "a")] == ["finished"] * 2
        assert [each.process_id for each in (await engine.client.search(status="running")).items] == ["a"]


@pytest.mark.parametrize("first", ["application", "progressor"])
async def test_beside_an_application(empty_dsn: str, tmp_path: Path, first: str) -> None:
    """Both migrate and run, whoever comes first, though they name their tables and revisions alike."""
    application = Application(tmp_path, empty_dsn)
    if first == "application":
        application.migrate()
    with pytest.raises(SchemaMismatch):
        migrations.check(empty_dsn)
    assert migrations.upgrade(empty_dsn) == (None, migrations.head())
    application.migrate()
    before = application.rows()
    await use(empty_dsn)
    assert application.rows() == before
    assert migrations.upgrade(empty_dsn, "base") == (migrations.head(), None)
    assert application.rows() == before


async def test_two_of_us_in_one_database(empty_dsn: str) -> None:
    """Each schema is a Progressor of its own: the same process lives in each."""
    for schema in ("progressor", "other_one", "user"):
        migrations.upgrade(empty_dsn, schema=schema)
        await use(empty_dsn, database_schema=schema)
        assert examine(empty_dsn, schema=schema).is_clean


@pytest.mark.parametrize("path", ["public", "''", "pg_temp", "nowhere", '"$user", public'])
async def test_no_statement_relies_on_the_search_path(dsn: str, path: str) -> None:
    """Whatever search_path the role has, our tables are found and no other."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET search_path = {path}")
        connection.execute("CREATE TABLE public.tasks (mine text)")
    migrations.check(dsn)
    await use(dsn)
    assert examine(dsn).is_clean


def test_a_schema_made_by_somebody_else(empty_dsn: str) -> None:
    """Where a schema stands ready, the right to make one is not needed."""
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA progressor")
    assert migrations.upgrade(empty_dsn) == (None, migrations.head())


@pytest.mark.parametrize("name", ["", "Upper", "pg_mine", "a-b", 'a"; DROP', "a" * 64, "1st"])
def test_a_name_that_is_none(dsn: str, name: str) -> None:
    """The schema's name is refused before anything is asked of the database."""
    with pytest.raises(InvalidRequest) as caught:
        Engine(dsn, [counters()], database_schema=name)
    assert caught.value.field == "database_schema"
