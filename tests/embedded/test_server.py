"""One process starts the server, uses it and stops it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from progressor.embedded import EmbeddedPostgres, default_data_dir, lifetime, named_data_dir
from progressor.errors import StorageUnavailable
from tests import postgres


def show(dsn: str, setting: str) -> str:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT current_setting(%s)", [setting]).fetchone()
    assert row is not None
    return str(row[0])


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[str, Path]]:
    """A server for tests that only look at it: its DSN and its folder."""
    home = Path(tempfile.mkdtemp(prefix="prg-embedded-", dir=postgres.PLACE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGDATA", "/nonexistent")
        patch.setenv("PGPORT", "1")
        patch.setenv("PROGRESSOR_DATABASE_URL", "secret")
        with postgres.embedded(home) as dsn:
            yield dsn, next(home.glob("pg*"))
    shutil.rmtree(home)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("data_checksums", "on"),
        ("listen_addresses", ""),
        ("unix_socket_permissions", "0700"),
        ("server_encoding", "UTF8"),
        ("TimeZone", "UTC"),
        ("max_connections", "200"),
        ("port", "5432"),
    ],
)
def test_the_server_is_durable_and_private(running: tuple[str, Path], name: str, value: str) -> None:
    """Nothing is traded for speed, there is no way in but the socket, and PGPORT says nothing."""
    dsn, folder = running
    assert show(dsn, name) == value
    assert (folder / "run").stat().st_mode & 0o077 == 0


def test_the_dsn_serves_sqlalchemy_too(running: tuple[str, Path]) -> None:
    """One DSN for psycopg, libpq and SQLAlchemy."""
    url = running[0].replace("postgresql:", "postgresql+psycopg:", 1)
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        name = connection.execute(sqlalchemy.text("SELECT current_database()")).scalar_one()
    engine.dispose()
    assert name == "progressor"


def test_the_callers_variables_stay_outside(running: tuple[str, Path]) -> None:
    """No secret of the caller reaches the server."""
    dsn, folder = running
    path = f"/proc/{lifetime.server_pid(folder)}/environ"
    # Asked of the server, because root in a container may not read another user's environment.
    with psycopg.connect(dsn) as connection:
        query = "SELECT pg_read_binary_file(%s, 0, 10000)"
        row = connection.execute(query, [path]).fetchone()
    assert row is not None
    assert b"PATH=" in row[0]
    assert b"secret" not in row[0]


def test_the_server_has_a_session_of_its_own(running: tuple[str, Path]) -> None:
    """Ctrl-C on the terminal reaches the engine, and not the server before it."""
    pid = lifetime.server_pid(running[1])
    assert pid is not None
    assert os.getsid(pid) != os.getsid(0)


def test_nothing_in_the_configuration_turns_durability_off(home: Path) -> None:
    """ALTER SYSTEM loses against the command line."""
    embedded = postgres.embedded(home)
    dsn = embedded.start()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")
    embedded.stop()
    with embedded as dsn:
        assert show(dsn, "fsync") == "on"


def test_committed_rows_survive_stop_and_start(home: Path) -> None:
    """The data directory outlives the server."""
    embedded = postgres.embedded(home)
    with embedded as dsn, psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    with embedded as dsn, psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_start_again_gives_the_same_server(home: Path) -> None:
    """A second start is an attach; one stop undoes both, and returns when the server has ended."""
    embedded = postgres.embedded(home)
    first = embedded.start()
    pid = lifetime.server_pid(next(home.glob("pg*")))
    assert embedded.start() == first
    assert lifetime.server_pid(next(home.glob("pg*"))) == pid
    embedded.stop()
    assert not lifetime.is_alive(next(home.glob("pg*")))
    embedded.stop()


def test_the_directory_may_go_right_after_stop(home: Path) -> None:
    """Neither the server nor the watcher brings anything back."""
    embedded = postgres.embedded(home)
    embedded.start()
    folder = next(home.glob("pg*"))
    embedded.stop()
    shutil.rmtree(folder)
    assert not folder.exists()


def test_a_server_that_cannot_start_says_why(home: Path) -> None:
    """The error holds the last lines of the server's log."""
    embedded = postgres.embedded(home)
    embedded.start()
    embedded.stop()
    (next(home.glob("pg*")) / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(StorageUnavailable, match="data directory was initialized by PostgreSQL"):
        embedded.start()


def test_a_server_somebody_else_started_is_left_alone(home: Path) -> None:
    """Its socket and its durability are not ours to trust, and its life not ours to end."""
    embedded = postgres.embedded(home)
    dsn = embedded.start()
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT setting FROM pg_config WHERE name = 'BINDIR'").fetchone()
    assert row is not None
    embedded.stop()
    data = next(home.glob("pg*")) / "data"
    owner = data.stat().st_uid if os.geteuid() == 0 else None
    options = f"-c listen_addresses='' -c unix_socket_directories={data}"
    command = [f"{row[0]}/pg_ctl", "-D", str(data), "-w", "-o", options, "-l", f"{data}/log/x.log"]
    subprocess.run([*command, "start"], check=True, user=owner, cwd="/", capture_output=True)
    try:
        with pytest.raises(StorageUnavailable, match="not started by progressor"):
            embedded.start()
        pid = lifetime.server_pid(data.parent)
        assert pid is not None
        os.kill(pid, 0)
    finally:
        subprocess.run([*command, "stop"], check=True, user=owner, cwd="/", capture_output=True)


def test_data_belong_to_the_version_that_began_them(home: Path) -> None:
    """Other programs never begin beside them: the error says which version is wanted, and what to do."""
    (home / "pg9" / "data").mkdir(parents=True)
    home.chmod(0o711)
    with pytest.raises(
        StorageUnavailable, match="no PostgreSQL 9, which began the data directory"
    ) as caught:
        postgres.embedded(home).start()
    assert f"has PostgreSQL {postgres.installation().version}\n" in str(caught.value)
    assert "PROGRESSOR_DATA_DIR" in str(caught.value)
    assert [folder.name for folder in home.iterdir()] == ["pg9"]


def test_each_folder_has_data_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """System directory for root; for others XDG, where a relative path does not count."""
    (here := tmp_path / "my shop").mkdir()
    (there := tmp_path / "b" / "my shop").mkdir(parents=True)
    monkeypatch.chdir(here)
    name = default_data_dir().name
    assert re.fullmatch(r"my_shop-[0-9a-f]{8}", name)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_data_dir() == Path("/var/lib/progressor", name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_data_dir() == Path("/home/ann/.local/share/progressor", name)
    monkeypatch.setenv("XDG_DATA_HOME", "/xdg")
    assert default_data_dir() == Path("/xdg/progressor", name)
    assert named_data_dir("demo") == Path("/xdg/progressor/demo")
    monkeypatch.chdir(there)
    assert re.fullmatch(r"my_shop-[0-9a-f]{8}", default_data_dir().name)
    assert default_data_dir().name != name


@pytest.mark.parametrize(("folder", "shown"), [("/", "root-"), ("/tmp", "tmp-")])
def test_a_folder_with_any_name_has_data(monkeypatch: pytest.MonkeyPatch, folder: str, shown: str) -> None:
    """The root of the file system too."""
    monkeypatch.chdir(folder)
    assert default_data_dir().name.startswith(shown)


def test_a_folder_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A shell may stand in a folder that somebody removed."""
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(StorageUnavailable, match="the present folder is gone"):
        EmbeddedPostgres()
    monkeypatch.chdir(tmp_path)


def test_folders_may_be_named_by_texts(tmp_path: Path) -> None:
    """As by paths."""
    assert EmbeddedPostgres(str(tmp_path / "data")).home == tmp_path / "data"
    with pytest.raises(StorageUnavailable, match=re.escape(str(tmp_path))):
        EmbeddedPostgres(tmp_path / "data", bin_dir=str(tmp_path)).start()
