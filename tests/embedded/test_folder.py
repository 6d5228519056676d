"""Where the files stand and who may reach them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from progressor.embedded.folder import socket_dir
from progressor.errors import StorageUnavailable
from tests import postgres

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another user")


@pytest.fixture
def deep(home: Path) -> Iterator[Path]:
    """A data directory whose path is too long for a socket."""
    path = home / ("x" * 60) / ("y" * 60)
    yield path
    shutil.rmtree(sockets_of(path), ignore_errors=True)


def sockets_of(home: Path) -> Path:
    return socket_dir(home.resolve() / f"pg{postgres.installation().major}")


def test_a_path_too_long_for_a_socket(deep: Path) -> None:
    """The socket goes to a short private directory in /tmp, the data stays."""
    with postgres.embedded(deep) as dsn, psycopg.connect(dsn) as connection:
        sockets = sockets_of(deep)
        assert connection.info.host == str(sockets)
        assert sockets.parent == Path("/tmp")
        assert sockets.stat().st_mode & 0o777 == 0o700
        assert (next(deep.glob("pg*")) / "data" / "PG_VERSION").exists()
    deep.rename(deep.parents[1] / "pg-none")  # the fixture `home` looks at its own level
    shutil.rmtree(deep.parents[1] / "pg-none")


def test_a_taken_socket_directory_is_refused(deep: Path, ground: Path) -> None:
    """Somebody who knows the name cannot put a server of his own in our way."""
    sockets = sockets_of(deep)
    sockets.symlink_to(ground)
    try:
        with pytest.raises(StorageUnavailable, match="shorter path"):
            postgres.embedded(deep).start()
    finally:
        sockets.unlink()


@as_root
def test_a_socket_directory_of_another_user_is_refused(deep: Path) -> None:
    """The same with a real directory."""
    sockets = sockets_of(deep)
    sockets.mkdir()
    os.chown(sockets, 12345, 12345)
    with pytest.raises(StorageUnavailable, match="uid 12345"):
        postgres.embedded(deep).start()


@as_root
def test_an_unreachable_parent_is_named(ground: Path) -> None:
    """Root's server runs as another user: the error says who, where and what to do."""
    closed = ground / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(StorageUnavailable, match=rf"cannot enter {closed} \(mode 700\).*chmod o\+x"):
        postgres.embedded(closed / "a" / "b").start()
    assert list(closed.iterdir()) == []
    assert closed.stat().st_mode & 0o777 == 0o700


@as_root
def test_an_unreachable_directory_with_files_is_left_alone(ground: Path) -> None:
    """What holds other people's files is not ours to open."""
    closed = ground / "closed"
    closed.mkdir(mode=0o700)
    (closed / "theirs").touch()
    with pytest.raises(StorageUnavailable, match=rf"cannot enter {closed}"):
        postgres.embedded(closed).start()
    assert closed.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_made_is_named(ground: Path) -> None:
    """The error names the path and the setting."""
    ground.chmod(0o555)
    with pytest.raises(StorageUnavailable, match=r"Permission denied.*PROGRESSOR_DATA_DIR"):
        postgres.embedded(ground / "a" / "b").start()
    ground.chmod(0o755)


@as_root
def test_another_users_folder_is_refused(home: Path) -> None:
    """Root does not write where another user could lead it astray."""
    folder = home / f"pg{postgres.installation().major}"
    folder.mkdir(parents=True)
    os.chown(folder, 12345, 12345)
    with pytest.raises(StorageUnavailable, match="belongs to another user"):
        postgres.embedded(home).start()


def test_an_empty_closed_directory_is_ours(home: Path) -> None:
    """What mkdtemp makes can be given as the data directory, for root too."""
    home.mkdir(mode=0o700)
    with postgres.embedded(home) as dsn, psycopg.connect(dsn):
        pass


def test_a_strict_umask_does_not_close_the_way(ground: Path, home: Path) -> None:
    """Directories that are made on the way can be passed by the server's user."""
    before = os.umask(0o077)
    try:
        with postgres.embedded(home) as dsn, psycopg.connect(dsn):
            pass
    finally:
        os.umask(before)


def test_parents_keep_their_modes_and_owners(ground: Path, home: Path) -> None:
    """Nothing outside the data directory changes."""
    (ground / "beside").mkdir(mode=0o700)
    watched = [*ground.parents, ground, ground / "beside", Path("/tmp"), Path.home()]
    watched += [postgres.installation().bin_dir, *postgres.installation().bin_dir.parents]

    def facts() -> list[tuple[int, int, int]]:
        return [(p.stat().st_mode, p.stat().st_uid, p.stat().st_gid) for p in watched if p.exists()]

    before = facts()
    with postgres.embedded(home):
        pass
    assert facts() == before
