"""The plugin of pytest, in runs of their own: what a user's tests get, and what a run leaves behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests import postgres

_SHOP = """
    import asyncio
    from datetime import UTC, datetime, timedelta

    import pytest

    from progressor import Namespace, Process

    shop = Namespace("shop", state=int)

    @shop.init
    async def begin(process: Process[int]) -> None:
        process.state = 0
        process.set_timer(after=timedelta(days=30))

    @shop.timeout
    async def bill(process: Process[int]) -> None:
        process.state += 1
        process.set_timer(after=timedelta(days=30))

    async def story(make):
        async with make([shop], now=datetime(2024, 1, 1, tzinfo=UTC)) as world:
            await world.client.start("shop", "acme")
            await world.advance(timedelta(days=365))
            assert (await world.client.get("shop", "acme")).state == 12
"""
_PLAIN = """
    def test_plain(progressor_world):
        asyncio.run(story(progressor_world))
"""
_ASYNCIO = """
    @pytest.mark.asyncio
    async def test_with_pytest_asyncio(progressor_world):
        await story(progressor_world)
"""
_ANYIO = """
    @pytest.mark.anyio
    async def test_with_anyio(progressor_world):
        await story(progressor_world)

    @pytest.fixture
    def anyio_backend():
        return "asyncio"
"""
# The second setting is for pytest-asyncio, which warns without it.
_INI = "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
SECONDS = 120


def _begin(folder: Path, *texts: str, options: tuple[str, ...] = (), **more: str) -> subprocess.Popen[str]:
    """Begin a run of tests of these texts, as a user does."""
    test = "\n".join(textwrap.dedent(text) for text in texts)
    (folder / "test_shop.py").write_text(test, encoding="utf-8")
    (folder / "pytest.ini").write_text(_INI, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=postgres.environment_of_a_run(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _passed(run: subprocess.Popen[str]) -> str:
    said, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, said
    return said


def _home_of(server: str) -> Path:
    """Where an embedded server has its data."""
    return Path(str(conninfo_to_dict(server)["host"])).parents[1]


@pytest.mark.parametrize("text", [_PLAIN, _ASYNCIO, _ANYIO], ids=["plain", "pytest-asyncio", "anyio"])
def test_a_world_is_made_from_a_fixture_by_every_kind_of_test(
    tmp_path: Path, text: str, server: str
) -> None:
    """None of them needs a setting; the server is that of PROGRESSOR_TEST_DATABASE_URL."""
    run = _begin(tmp_path, _SHOP, text, PROGRESSOR_TEST_DATABASE_URL=server)
    assert "1 passed" in _passed(run)


def test_workers_of_one_run_share_a_server_that_ends_with_the_run(tmp_path: Path) -> None:
    """And each test has a database of its own: what one starts, no other finds."""
    text = """
        @pytest.mark.parametrize("number", range(8))
        def test_plain(progressor_world, progressor_server, number):
            asyncio.run(story(progressor_world))
            with open("servers.txt", "a") as servers:
                servers.write(progressor_server + "\\n")
    """
    run = _begin(tmp_path, _SHOP, text, options=("-n", "2", "-p", "xdist"))
    assert "8 passed" in _passed(run)
    (server,) = set((tmp_path / "servers.txt").read_text(encoding="utf-8").splitlines())
    home = _home_of(server)
    assert home.name.startswith("progressor-test-")
    assert not home.exists()


def test_after_ctrl_c_no_server_is_left(tmp_path: Path) -> None:
    """In the middle of a test."""
    text = """
        def test_hangs(progressor_dsn):
            import time
            with open("begun.txt", "w") as begun:
                begun.write(progressor_dsn)
            time.sleep(600)
    """
    # A run in the background of a shell ignores Ctrl-C, and so would its children.
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run = _begin(tmp_path, _SHOP, text)
    finally:
        signal.signal(signal.SIGINT, ours)
    begun, until = tmp_path / "begun.txt", time.monotonic() + SECONDS
    while not (begun.exists() and begun.read_text(encoding="utf-8")):
        assert run.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    home = _home_of(begun.read_text(encoding="utf-8"))
    assert home.exists()
    run.send_signal(signal.SIGINT)
    try:
        said, _ = run.communicate(timeout=SECONDS)
    finally:
        run.kill()
    assert "KeyboardInterrupt" in said
    assert not home.exists()


def test_a_run_without_its_fixtures_imports_nothing_and_makes_nothing(tmp_path: Path) -> None:
    """Of the package beside the plugin itself; no test of others becomes slower."""
    text = """
        import sys

        def test_nothing_of_progressor_is_imported():
            modules = {name for name in sys.modules if name.startswith("progressor")}
            assert modules == {
                "progressor", "progressor.exports", "progressor.release",
                "progressor.testing", "progressor.testing.plugin",
            }
            assert not {"psycopg", "pydantic", "sqlalchemy"} & set(sys.modules)
    """
    assert "1 passed" in _passed(_begin(tmp_path, text))


def test_a_server_can_be_named_in_the_settings_of_pytest(tmp_path: Path, server: str) -> None:
    """Where no variable names another one."""
    run = _begin(tmp_path, _SHOP, _PLAIN, options=("-o", f"progressor_test_database_url={server}"))
    assert "1 passed" in _passed(run)


def test_a_database_of_a_test_is_dropped_with_the_run(tmp_path: Path, server: str) -> None:
    """Also while a test has left connections open, and the template too."""
    text = """
        def test_leaves_a_connection(progressor_dsn, _progressor_databases):
            import psycopg
            global connection
            connection = psycopg.connect(progressor_dsn)
            with open("names.txt", "w") as file:
                file.write(f"{connection.info.dbname} {_progressor_databases._template}")
    """
    _passed(_begin(tmp_path, _SHOP, text, PROGRESSOR_TEST_DATABASE_URL=server))
    # Other tests make databases on this server meanwhile.
    names = (tmp_path / "names.txt").read_text(encoding="utf-8").split()
    assert [name.startswith("progressor_test_") for name in names] == [True, True]
    with psycopg.connect(server) as admin:
        left = admin.execute("SELECT FROM pg_database WHERE datname = ANY(%s)", [names]).fetchall()
    assert left == []
