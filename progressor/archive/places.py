"""Places of archives: a directory, or an object store that fsspec knows, with the extra `archive`.

Rule: a file is there whole or not at all, and once written it survives the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from progressor.errors import InvalidRequest

CUT_OFF = ".part"
"""The end of the name of a file while it is written; it stays if that is cut off."""


class FileStore(Protocol):
    """A place of files, by names with slashes."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole; it replaces one of this name."""
        ...

    def read(self, name: str) -> bytes:
        """Return a file; raise FileNotFoundError if there is none."""
        ...

    def names(self, folder: str) -> Iterator[str]:
        """Yield the names of all files below a folder, in their order; none if it is not there.

        Raise what a disk or a driver raises for a part of it that cannot be listed.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file; do nothing if there is none."""
        ...


class Directory:
    """A directory, also of a mounted disk; a relative one is below the working folder of this moment."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        there = next(each for each in (self._root, *self._root.parents) if each.exists())
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = path.with_name(f".{path.name}{CUT_OFF}")
        try:
            with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            made = made.replace(path)
            for folder in path.parents:
                sync_folder(folder)
                if folder == there:
                    break
        except BaseException:
            # The next try has another name: a full disk would be filled with files that nobody reads.
            made.unlink(missing_ok=True)
            raise

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def names(self, folder: str) -> Iterator[str]:
        top = self._root / folder
        # Not `rglob`, which leaves out folders that it may not read; nor `exists`, which is False of these.
        found = [Path(at, name) for at, _, names in os.walk(top, onerror=_unreadable) for name in names]
        for path in sorted(found):
            yield path.relative_to(self._root).as_posix()

    def remove(self, name: str) -> None:
        path = self._root / name
        path.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            sync_folder(path.parent)


def _unreadable(error: OSError) -> None:
    """Raise what keeps a folder from being listed, but that it is not there, or no longer."""
    if not isinstance(error, FileNotFoundError):
        raise error


def sync_folder(folder: Path) -> None:
    """Have the disk keep which files a folder has."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class ObjectStore:
    """A bucket, or what else fsspec has a file system for: `s3://bucket/prefix`."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec  # noqa: PLC0415 - the extra
        except ImportError:
            raise InvalidRequest(
                "an archive at a URL needs the extra: pip install 'progressor-engine[archive]'",
                field="archive",
            ) from None
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        # Some connect at once, and raise anything.
        except Exception as error:  # noqa: BLE001 - a driver may raise anything
            raise InvalidRequest(f"archive {_shown(url)}: {_why(error, url)}", field="archive") from None

    def write(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, data)

    def read(self, name: str) -> bytes:
        data: bytes = self._files.cat_file(f"{self._root}/{name}")
        return data

    def names(self, folder: str) -> Iterator[str]:
        # What another process has written must be seen.
        self._files.invalidate_cache()
        top = f"{self._root}/{folder}"
        try:
            found: list[Any] = (
                self._files.find(top) if self._lists_at_once else self._files.ls(top, detail=True)
            )
        except FileNotFoundError:
            return
        paths = found if self._lists_at_once else self._below(top, found)
        for path in sorted(map(str, paths)):
            yield path.removeprefix(self._root).removeprefix("/")

    @property
    def _lists_at_once(self) -> bool:
        """Return whether `find` is the driver's own, as that of buckets; fsspec's leaves out what fails."""
        import fsspec.asyn  # noqa: PLC0415 - the extra

        kind = type(self._files)
        base, name = fsspec.AbstractFileSystem, "find"
        if issubclass(kind, fsspec.asyn.AsyncFileSystem):
            base, name = fsspec.asyn.AsyncFileSystem, "_find"
        return getattr(kind, name) is not getattr(base, name)

    def _below(self, folder: str, entries: list[Any]) -> Iterator[str]:
        """Yield the paths of all files of a folder that has these entries, and of the folders below it."""
        for entry in entries:
            path = str(entry["name"])
            if entry["type"] != "directory":
                yield path
            # Some drivers list the folder itself, too.
            elif path.strip("/") != folder.strip("/"):
                yield from self._below(path, self._files.ls(path, detail=True))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{name}")


def _shown(url: str) -> str:
    """Return a URL without user, password and query."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


def _why(error: Exception, url: str) -> str:
    """Return what an error says, unless that may be a piece of a secret in the URL."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    is_secret = isinstance(error, ValueError) and ("@" in url or "?" in url)
    return type(error).__name__ if is_secret else without_secrets(str(error), url)


# Characters; a shorter value of a query, such as `1`, stands in many a text.
_SHORTEST_SECRET = 4


def without_secrets(text: str, url: str) -> str:
    """Return a text in which user, password and query of a URL are left out."""
    address, _, query = url.partition("://")[2].partition("?")
    user = address.rpartition("@")[0]
    values = [pair.partition("=")[2] for pair in query.split("&")]
    values = [value for value in values if len(value) >= _SHORTEST_SECRET]
    for secret in (user, user.partition(":")[2], query, *values):
        for form in (secret, unquote(secret)):
            text = text.replace(form, "…") if form else text
    return text


def place_at(url: str) -> FileStore:
    """Return the place of a directory's path or a URL; raise InvalidRequest if there is no such kind."""
    if not url:
        raise InvalidRequest("archive must be a directory or a URL", field="archive")
    if url.startswith("file://"):
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise InvalidRequest(
                "archive must have three slashes behind file: file:///srv/archive is a directory of this "
                "machine",
                field="archive",
            )
        return Directory(Path(unquote(parts.path)))
    return ObjectStore(url) if "://" in url else Directory(_at_home(url))


def _at_home(path: str) -> Path:
    """Return a path whose ~ is the home of a user; InvalidRequest if nobody knows that home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InvalidRequest(f"archive {path}: {error}", field="archive") from None
