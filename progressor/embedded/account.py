"""The operating system user of the server, because PostgreSQL refuses to run as root.

Rule: programs run as another user through `Account.run` alone.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from progressor.errors import StorageUnavailable

_SERVER_USERS = ("postgres", "nobody")
_RUN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Account:
    """A user and its group; programs that run as another user keep no other groups."""

    name: str
    uid: int
    gid: int

    @property
    def is_current(self) -> bool:
        """True if this OS process already runs as this user."""
        return self.uid == os.geteuid()

    def run(
        self,
        command: Sequence[str | Path],
        *,
        output: int = subprocess.PIPE,
        environment: Mapping[str, str] | None = None,
        inherit: Sequence[int] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end as this user; `stdout` of the result holds the text of both streams.

        A new session keeps Ctrl-C away from it. It gets none of the caller's variables (PGPORT, secrets)
        but LD_LIBRARY_PATH. Raises subprocess.TimeoutExpired after ten minutes.
        """
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        return subprocess.run(  # noqa: S603 - programs of the installation that was found
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            user=None if self.is_current else self.uid,
            group=None if self.is_current else self.gid,
            extra_groups=None if self.is_current else [],
            umask=0o077,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C", **kept, **(environment or {})},
            pass_fds=inherit,
            start_new_session=True,
            timeout=_RUN_SECONDS,
            text=True,
            errors="replace",
            check=False,
        )

    def can_run(self, programs: Sequence[Path]) -> bool:
        """Return whether each of the programs starts for this user."""
        try:
            return all(self.run([program, "--version"]).returncode == 0 for program in programs)
        except OSError:
            return False

    def require_entry(self, folder: Path) -> None:
        """Raise StorageUnavailable if this user cannot enter the folder; the text names the obstacle."""
        if self.is_current or self._enters(folder):
            return
        closed = next(f for f in [*reversed(folder.parents), folder] if not self._enters(f))
        raise StorageUnavailable(
            f"PostgreSQL must not run as root, so it runs as user {self.name!r}, who cannot enter "
            f"{closed} (mode {closed.stat().st_mode & 0o7777:o}) on the way to {folder}: choose a "
            "data directory elsewhere (PROGRESSOR_DATA_DIR, or the argument data_dir), or let "
            f"others pass with `chmod o+x {closed}`"
        )

    def _enters(self, folder: Path) -> bool:
        # Ask the kernel instead of reading modes: access lists and mounts decide too.
        return self.run(["test", "-x", folder]).returncode == 0


def server_account(data: Path) -> Account:
    """Return the account of the server: this user; for root the owner of the data, else a standard user.

    StorageUnavailable if there is none.
    """
    if os.geteuid() != 0:
        return Account(_name(os.geteuid()), os.geteuid(), os.getegid())
    if data.exists():
        owner = data.stat()
        if owner.st_uid != 0:
            return Account(_name(owner.st_uid), owner.st_uid, owner.st_gid)
    for name in _SERVER_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise StorageUnavailable(
        "PostgreSQL must not run as root, and there is no user to run it as "
        f"(looked for {', '.join(_SERVER_USERS)}): create one with `useradd --system postgres`, "
        "or set PROGRESSOR_DATABASE_URL"
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
