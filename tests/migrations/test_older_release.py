"""A release beside the tables of a newer one: it works if what was migrated only adds."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from progressor import Client, Engine, Namespace, Process
from progressor.errors import SchemaMismatch
from progressor.storage import migrations, schema_check
from progressor.storage.postgres.pipeline import numbered
from progressor.storage.statements import STATEMENTS
from tests.cli.conftest import run
from tests.docs.pages import ROOT

_REVISION = '''"""What a later release brings."""

from alembic import op

revision = "{revision}"
down_revision = "{before}"
branch_labels = None
depends_on = None
{says}


def upgrade():
    schema = op.get_context().version_table_schema
    op.execute(f"ALTER TABLE {{schema}}.workers ADD COLUMN of_{revision} text")
    op.execute(f"CREATE TABLE {{schema}}.added_by_{revision} (name text)")


def downgrade():
    schema = op.get_context().version_table_schema
    op.execute(f"DROP TABLE {{schema}}.added_by_{revision}")
    op.execute(f"ALTER TABLE {{schema}}.workers DROP COLUMN of_{revision}")
'''
ADDS, NOT_SAID, CHANGES = "additive = True", "", "additive = False"
# What else such a migration may do to what there is: an older release never asks for more than it did.
WIDENED: dict[str, LiteralString] = {
    "view": """
        DO $$ BEGIN EXECUTE 'CREATE OR REPLACE VIEW progressor.v_tokens AS SELECT v.*, 1 AS more FROM ('
            || rtrim(pg_get_viewdef('progressor.v_tokens'::regclass), ';') || ') AS v'; END $$
    """,
    "index": "DROP INDEX progressor.bulks_next; CREATE INDEX bulks_later ON progressor.bulks (next_at)",
    "constraint": "ALTER TABLE progressor.bulks DROP CONSTRAINT bulks_pace_check",
    "column": "ALTER TABLE progressor.bulks ALTER COLUMN pace DROP NOT NULL",
}

Later = Callable[..., None]


@pytest.fixture
def later(tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Later]:
    """`later(ADDS, …)`: a release with so many further migrations has upgraded the database."""
    folder = tmp_path / "alembic"
    shutil.copytree(ROOT / "alembic", folder, ignore=shutil.ignore_patterns("__pycache__"))

    def release(patch: pytest.MonkeyPatch) -> None:
        for module in (migrations, schema_check):
            patch.setattr(module, "folder", lambda: folder)

    def upgrade(*migrations_say: str) -> None:
        before = migrations.head()
        for number, says in enumerate(migrations_say, 9001):
            text = _REVISION.format(revision=number, before=before, says=says)
            (folder / "versions" / f"{number}_later.py").write_text(text)
            before = str(number)
        with monkeypatch.context() as patch:
            release(patch)
            assert migrations.upgrade(dsn)[1] == before

    yield upgrade
    # The doctor that looks at the end of each test is of this release, and may be.
    with monkeypatch.context() as patch:
        release(patch)
        migrations.upgrade(dsn, "0001")


def _catalog(dsn: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'progressor'::regnamespace ORDER BY 1"
        ).fetchall()


async def test_an_older_release_runs_on_what_only_adds(later: Later, dsn: str) -> None:
    """It starts, serves and asks, however many such migrations there were; so does its `migrate`."""
    later(ADDS, ADDS)
    assert migrations.check(dsn) == "9002"
    before = _catalog(dsn)
    assert migrations.upgrade(dsn) == ("9002", "9002")
    assert migrations.descent(dsn, "head") is None
    assert _catalog(dsn) == before
    namespace = Namespace("till")

    @namespace.init
    async def open_(process: Process[int]) -> int:
        return 1

    async with Engine(dsn, [namespace]), Client(dsn) as client:
        assert await client.start("till", "p") == 1
        await client.remove("till", "p")


@pytest.mark.parametrize("widened", WIDENED)
def test_what_a_newer_release_widened_is_no_difference(
    later: Later, dsn: str, caplog: pytest.LogCaptureFixture, widened: str
) -> None:
    """An older one says nothing of it, and its `migrate` ends well: it may stand before each start."""
    later(ADDS)
    with psycopg.connect(dsn) as connection:
        connection.execute(WIDENED[widened])
    migrations.check(dsn)
    assert [line for line in caplog.records if line.levelname == "WARNING"] == []
    assert migrations.compare(dsn) == ()
    for command in (["migrate"], ["migrate", "--check"]):
        ended = run(*command, PROGRESSOR_DATABASE_URL=dsn)
        assert (ended.status, "DIFFERS" in ended.out) == (0, False)


def test_a_new_column_of_any_name_disturbs_no_statement(dsn: str) -> None:
    """A released worker goes on beside it, though its statements give that name to something else."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        before = _preparable(connection)
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'progressor'::regnamespace AND relkind = 'r'"
        ).fetchall()
        for (table,) in tables:
            new = ", ".join(f'ADD COLUMN IF NOT EXISTS "{name}" text' for name in sorted(_NAMED))
            connection.execute(f"ALTER TABLE progressor.{table} {new}".encode())
        assert len(before) > 200
        assert _preparable(connection) == before


_NAMED = {
    name
    for text in STATEMENTS.values()
    for one, several in re.findall(r'\bAS "?(\w+)"?(?: \(([\w,\s]+)\))?', text)
    for name in (one, *re.findall(r"\w+", several))
    if name.islower()
}


def _preparable(connection: psycopg.Connection[tuple[object, ...]]) -> dict[str, str]:
    """The statements that PostgreSQL can prepare, and why it cannot prepare the others."""
    found = {}
    for name in STATEMENTS:
        try:
            connection.execute(b"PREPARE one AS " + numbered(name).sql)
            connection.execute("DEALLOCATE one")
            found[name] = "can be prepared"
        except psycopg.Error as error:
            found[name] = str(error)
    return found


def test_what_is_missing_beside_a_newer_release_is_named(later: Later, dsn: str) -> None:
    """What this release needs must be there, whoever migrated."""
    later(ADDS)
    with psycopg.connect(dsn) as connection:
        connection.execute("ALTER TABLE progressor.bulks DROP COLUMN pace")
    with pytest.raises(SchemaMismatch, match=r"column bulks\.pace is missing"):
        migrations.check(dsn)


@pytest.mark.parametrize("says", [(CHANGES,), (NOT_SAID,), (CHANGES, ADDS), (ADDS, NOT_SAID)])
def test_what_changes_more_is_refused(later: Later, dsn: str, says: tuple[str, ...]) -> None:
    """Be it before or after others that only add; and what does not say that it adds is taken to change."""
    later(*says)
    for act in (migrations.check, migrations.upgrade):
        with pytest.raises(SchemaMismatch, match="upgrade the progressor package"):
            act(dsn)


def test_an_older_release_does_not_go_down(later: Later, dsn: str) -> None:
    """It does not know the way, and touches nothing."""
    later(ADDS)
    before = _catalog(dsn)
    for act in (migrations.upgrade, migrations.descent):
        with pytest.raises(SchemaMismatch, match="upgrade the progressor package"):
            act(dsn, "0001")
    assert _catalog(dsn) == before


@pytest.mark.parametrize(
    "comment", ["NULL", "'ours'", "'Revision 0002 works with releases from revision 0001 on.'"]
)
def test_a_database_that_says_nothing_is_refused(later: Later, dsn: str, comment: LiteralString) -> None:
    """As one that was restored without its comments, or says it of another revision."""
    later(ADDS)
    with psycopg.connect(dsn) as connection:
        connection.execute("COMMENT ON TABLE progressor.alembic_version IS " + comment)
    with pytest.raises(SchemaMismatch, match="upgrade the progressor package"):
        migrations.check(dsn)


def test_every_migration_says_whether_it_only_adds() -> None:
    """It must be thought of: the first one alone has nothing before it."""
    files = sorted((ROOT / "alembic" / "versions").glob("*.py"))[1:]
    assert [path.name for path in files if "\nadditive = " not in path.read_text()] == []


def test_this_release_serves_those_before_it(dsn: str, empty_dsn: str) -> None:
    """It is written into the database, by an upgrade and by the SQL that is printed."""
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(migrations.sql().encode())
    for each in (dsn, empty_dsn):
        with psycopg.connect(each) as connection:
            (said,) = connection.execute(
                "SELECT obj_description('progressor.alembic_version'::regclass, 'pg_class')"
            ).fetchone() or (None,)
        assert said == f"Revision {migrations.head()} works with releases from revision 0011 on."
