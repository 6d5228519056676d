"""NdjsonSink: events appended to a file, or written to standard output, a line of JSON each.

Rule: a file is lines that are whole, also after a crash in the middle of one, and what `send` returned for
survives the machine. What this sink has not written it does not cut.
"""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import select
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import from_json

from progressor.archive.places import sync_folder
from progressor.client.results import FeedEvent
from progressor.errors import InvalidRequest
from progressor.sinks.cloudevents import structured
from progressor.sinks.failures import SinkUnreachable

_STDOUT = "-"
_BLOCK = 64 * 1024
# The beginning of every line, for lines that are not whole.
_BEGINNING = b'{"specversion":"1.0",'
# Seconds between two looks at whether the writing is wanted still.
_LOOK = 0.1


class NdjsonSink:
    """A sink that appends each event to a file, as a line of JSON of CloudEvents; `-` is standard output.

    The file is opened anew by each `send`, so it may be moved aside at any time, and several sinks may
    append to one. Raise InvalidRequest for a path that cannot be one.
    """

    def __init__(self, path: Path | str) -> None:
        text = os.fspath(path)
        if not isinstance(text, str) or not text or "\x00" in text:
            raise InvalidRequest(
                f"path must be that of a file, or {_STDOUT} for standard output", field="path"
            )
        self._path = None if text == _STDOUT else Path(text)
        self._out = _StandardOutput()

    async def send(self, events: Sequence[FeedEvent]) -> None:
        """Write a line for each; return once all are on the disk, or read by whoever reads the output.

        Raise SinkUnreachable if they cannot be written.
        """
        lines = b"".join(structured(event) + b"\n" for event in events)
        if not lines:
            return
        # In threads of the loop, which waits for them at its end: no line is cut off by it.
        if self._path is not None:
            await asyncio.to_thread(_append, self._path, lines)
            return
        is_left = threading.Event()
        try:
            await asyncio.to_thread(self._out.write, lines, is_left)
        finally:
            # If this is cancelled, the thread must not wait for a reader who reads no more.
            is_left.set()

    async def close(self) -> None:
        """Do nothing: no file is open between two calls of `send`."""

    def __repr__(self) -> str:
        """Show where it writes to."""
        return f"<NdjsonSink of {'standard output' if self._path is None else self._path}>"


class NdjsonOptions(BaseModel):
    """The options of a sink of the type `ndjson`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["ndjson"]
    path: str
    """The file to append to; `-` is standard output."""

    @field_validator("path")
    @classmethod
    def _is_a_path(cls, path: str) -> str:
        # InvalidRequest is a ValueError, which pydantic makes a fault of.
        NdjsonSink(path)
        return path

    def open(self) -> NdjsonSink:
        """Return the sink; it opens the file at its first event."""
        return NdjsonSink(self.path)


class _StandardOutput:
    """The standard output of this OS process; who reads it may be slow, or leave."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # What is left of a line whose beginning was written.
        self._rest = b""

    def write(self, lines: bytes, is_left: threading.Event) -> None:
        """Write lines, behind the rest of one that was begun; stop in between if nobody waits for them."""
        with self._lock:
            data = self._rest + lines
            try:
                for done in _written(data, is_left):
                    is_torn = not data.endswith(b"\n", 0, done)
                    self._rest = data[done : data.index(b"\n", done) + 1] if is_torn else b""
            except BrokenPipeError:
                # Whoever reads it next begins anew.
                self._rest = b""
                text = "standard output cannot be written: its reader has left (broken pipe)"
                raise SinkUnreachable(text) from None
            except (OSError, ValueError) as error:
                raise SinkUnreachable(f"standard output cannot be written: {_why(error)}") from None


def _written(data: bytes, is_left: threading.Event) -> Iterator[int]:
    """Write to standard output until nobody waits for it; yield how much is written so far, in bytes."""
    out = sys.stdout
    if out is None:
        raise ValueError("it is closed")
    out.flush()
    try:
        number = out.fileno()
    except io.UnsupportedOperation:
        # It was replaced, by one that has no file: that of a test.
        out.write(data.decode())
        out.flush()
        yield len(data)
        return
    done = 0
    while done < len(data) and not is_left.is_set():
        # A pipe that is ready takes so many bytes at once.
        if select.select([], [number], [], _LOOK)[1]:
            with suppress(BlockingIOError):
                done += os.write(number, data[done : done + select.PIPE_BUF])
                yield done
    if stat.S_ISREG(os.fstat(number).st_mode):
        os.fsync(number)


def _append(path: Path, lines: bytes) -> None:
    try:
        number = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o640)
        with os.fdopen(number, "r+b", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise SinkUnreachable(f"{path} cannot be written: it is no file")
            # Two of them, during a change of workers, must not mend what the other one writes.
            fcntl.flock(number, fcntl.LOCK_EX)
            size = _mended(path, file)
            _write_whole(file, lines, size)
            if size == 0:
                sync_folder(path.parent)
    except OSError as error:
        raise SinkUnreachable(f"{path} cannot be written: {_why(error)}") from None


def _write_whole(file: BinaryIO, lines: bytes, size: int) -> None:
    """Append all, or nothing: a disk that is full takes a part."""
    left = memoryview(lines)
    try:
        while left:
            left = left[file.write(left) :]
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), size)
        raise


def _mended(path: Path, file: BinaryIO) -> int:
    """Cut the beginning of a line that a crash has left at the end, or end a line; return the size."""
    size = os.fstat(file.fileno()).st_size
    begin, tail = _last_line(file.fileno(), size)
    if not tail:
        return size
    # After a crash of the machine, a file may end with zeros.
    written = tail.rstrip(b"\0")
    if not written.startswith(_BEGINNING[: len(written)]):
        raise SinkUnreachable(
            f"{path} cannot be appended to: its last line does not end, and is not of this sink"
        )
    if tail == written and _is_whole(tail):
        file.write(b"\n")
        return size + 1
    os.ftruncate(file.fileno(), begin)
    return begin


def _last_line(number: int, size: int) -> tuple[int, bytes]:
    """Return what stands behind the last line break, and where it begins."""
    begin, tail = size, b""
    while begin:
        length = min(_BLOCK, begin)
        begin -= length
        head, found, behind = os.pread(number, length, begin).rpartition(b"\n")
        tail = behind + tail
        if found:
            return begin + len(head) + 1, tail
    return 0, tail


def _is_whole(line: bytes) -> bool:
    try:
        from_json(line)
    except ValueError:
        return False
    return True


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
