"""The folders of the server, with their modes and owners.

Rule: only folders that were made here change mode or owner; those of others are checked, and refused with
a text that names the remedy.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from progressor.embedded.account import Account
from progressor.embedded.lifetime import DATA, LOCKS
from progressor.errors import StorageUnavailable

START_LOG = "start.log"
SOCKET_PORT = 5432  # names the socket's file; nothing listens on a port

_LONGEST_NAME = 40
_TAIL_LINES = 12
_TAIL_BYTES = 8192
# The kernel's limit is 107 bytes (Linux) or 103 (macOS); the smaller one serves both.
_SOCKET_PATH_BYTES = 103
_SHORT_FOLDER = Path("/tmp")  # noqa: S108 - checked below; TMPDIR may differ between the users


def default_data_dir() -> Path:
    """Return the default data directory: each working folder has one of its own.

    It stands outside that folder, because root's server runs as another user, who may not enter it.
    StorageUnavailable if the working folder is gone.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError as error:
        raise StorageUnavailable("the present folder is gone: change into one that is there") from error
    name = re.sub(r"[^\w.-]", "_", here.name or "root", flags=re.ASCII)[:_LONGEST_NAME]
    return named_data_dir(f"{name}-{hashlib.sha256(os.fsencode(here)).hexdigest()[:8]}")


def named_data_dir(name: str) -> Path:
    """Return the data directory of this name: the system's for root, else the user's (XDG).

    StorageUnavailable if the user has no home directory.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/progressor", name)
    configured = os.environ.get("XDG_DATA_HOME", "")
    if Path(configured).is_absolute():
        return Path(configured, "progressor", name)
    try:
        return Path.home() / ".local" / "share" / "progressor" / name
    except RuntimeError as error:
        raise StorageUnavailable(
            "this user has no home directory to keep the embedded PostgreSQL in: set PROGRESSOR_DATA_DIR"
        ) from error


def major_of(home: Path) -> int | None:
    """Return the major version of PostgreSQL that began a data directory; None if it holds no data."""
    majors = (data.parent.name.removeprefix("pg") for data in home.glob(f"pg*/{DATA}"))
    return max((int(major) for major in majors if major.isdecimal()), default=None)


def prepare_folder(home: Path, *, major: int, account: Account) -> Path:
    """Make `home`, and in it the folder of one major version with its locks; return that folder.

    StorageUnavailable if it belongs to another user, or the account cannot enter it.
    """
    folder = home / f"pg{major}"
    existing = next(parent for parent in home.parents if parent.exists())
    account.require_entry(existing)
    # Root's directories let other users, so the account too, pass through, but not list them.
    mode = 0o700 if account.is_current else 0o711
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    if home not in missing and not account.is_current and _is_ours_and_empty(home):
        home.chmod(home.stat().st_mode | 0o011)
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(mode)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise StorageUnavailable(
            f"{folder} belongs to another user (uid {folder.lstat().st_uid}): run as that user, "
            "or choose another data directory (PROGRESSOR_DATA_DIR, or the argument data_dir)"
        )
    account.require_entry(folder)
    for name in LOCKS:
        (folder / name).touch(mode=0o600)
    return folder


def socket_dir(folder: Path) -> Path:
    """Return the directory of the socket; every process that uses the folder computes the same one."""
    direct = folder / "run"
    if len(os.fsencode(direct / f".s.PGSQL.{SOCKET_PORT}")) <= _SOCKET_PATH_BYTES:
        return direct
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return _SHORT_FOLDER / f"progressor-{name}"


def prepare_socket_dir(folder: Path, account: Account) -> None:
    """Make the directory of the socket, for the account alone: access to it is the whole authentication.

    StorageUnavailable if another user has made it.
    """
    path = socket_dir(folder)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        # In /tmp another user may have made it, to pass for our server; he cannot replace ours.
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), account.uid):
            raise StorageUnavailable(
                f"{path} should be the private directory of the socket, but is not a directory or "
                f"belongs to another user (uid {found.st_uid}): remove it, or choose a shorter "
                "path for the data directory (PROGRESSOR_DATA_DIR, or the argument data_dir)"
            ) from None
    give_to(path, account)


def give_to(path: Path, account: Account) -> None:
    """Make one of our directories private to the account."""
    path.chmod(0o700)
    if not account.is_current:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def log_tail(folder: Path) -> str:
    """Return the last lines of the server's newest log, as text for an error."""
    logs = [folder / START_LOG, *(folder / DATA / "log").glob("*.log")]
    logs = [log for log in logs if log.is_file() and not log.is_symlink()]
    if not logs:
        return "(the server wrote no log)"
    newest = max(logs, key=lambda log: log.stat().st_mtime_ns)
    with newest.open("rb") as log:
        log.seek(max(0, newest.stat().st_size - _TAIL_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
    return f"the last lines of {newest}:\n" + "\n".join(lines[-_TAIL_LINES:])


def _is_ours_and_empty(home: Path) -> bool:
    return home.stat().st_uid == os.geteuid() and not any(home.iterdir())
