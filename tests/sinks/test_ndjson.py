"""A file of NDJSON has whole lines, whatever interrupts their writing; standard output has too."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import io
import json
import os
import select
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from progressor import InvalidRequest, NonRetryable
from progressor.sinks import ndjson
from progressor.sinks.cloudevents import structured
from progressor.sinks.failures import SinkUnreachable
from progressor.sinks.ndjson import NdjsonOptions, NdjsonSink
from tests.docs.pages import ROOT
from tests.sinks.made import made


def _lines(path: Path) -> list[Any]:
    """The values of all lines; each of them ends."""
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


async def test_each_event_is_a_line(tmp_path: Path) -> None:
    """In their order, batch after batch; nobody but its owner and group may read the file."""
    path = tmp_path / "events.ndjson"
    sink = NdjsonSink(path)
    events = [made(payload="line\nbreak"), made(), made()]
    await sink.send(events[:2])
    await sink.send([])
    await sink.send(events[2:])
    await sink.close()
    assert path.read_bytes() == b"".join(structured(event) + b"\n" for event in events)
    assert stat.S_IMODE(path.stat().st_mode) & 0o027 == 0


async def test_what_was_accepted_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synced once it has all, and the directory of a new one too."""
    path, synced = tmp_path / "events.ndjson", []

    def noted(number: int) -> None:
        is_file = stat.S_ISREG(os.fstat(number).st_mode)
        synced.append(os.fstat(number).st_size if is_file else "directory")

    monkeypatch.setattr(ndjson.os, "fsync", noted)
    sink = NdjsonSink(path)
    await sink.send([made()])
    assert synced == [path.stat().st_size, "directory"]
    await sink.send([made()])
    assert synced[2:] == [path.stat().st_size]


_before, _torn = made(), made(process_id="zoë", payload={"text": "x" * 50})
_SIZE = len(structured(_torn))


@settings(deadline=None)  # it waits for a disk
@given(st.integers(0, _SIZE), st.integers(0, 3), st.booleans())
def test_a_line_that_a_crash_cut_off_is_mended(length: int, zeros: int, is_first: bool) -> None:
    """Cut anywhere, also with zeros behind it: what was there before stays, and a whole line is kept."""
    before = b"" if is_first else structured(_before) + b"\n"
    after = made()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events.ndjson")
        path.write_bytes(before + structured(_torn)[:length] + bytes(zeros))
        asyncio.run(NdjsonSink(path).send([after]))
        kept = [structured(_torn) + b"\n"] if length == _SIZE and zeros == 0 else []
        assert path.read_bytes() == b"".join([before, *kept, structured(after), b"\n"])


async def test_a_long_line_that_was_cut_off_is_mended(tmp_path: Path) -> None:
    """Also if it is longer than what is read at once."""
    path = tmp_path / "events.ndjson"
    path.write_bytes(structured(_before) + b"\n" + structured(made(payload="x" * 300_000))[:-1])
    await NdjsonSink(path).send([_torn])
    assert [line["id"] for line in _lines(path)] == [_before.id, _torn.id]


@pytest.mark.parametrize("text", ["notes", "one\ntwo", '{"other": 1}', "\0\0x", '{"specversion":"0.3"'])
async def test_what_it_has_not_written_is_not_cut(text: str, tmp_path: Path) -> None:
    """A file of somebody else, whose last line has no end, is left as it is."""
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(SinkUnreachable, match="its last line does not end, and is not of this sink"):
        await NdjsonSink(path).send([made()])
    assert path.read_text() == text


async def test_a_disk_that_is_full_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fitted is taken back; once there is room, all of it is written."""
    path, sink, first, second = (
        tmp_path / "events.ndjson",
        NdjsonSink(tmp_path / "events.ndjson"),
        made(),
        made(),
    )
    await sink.send([first])
    with monkeypatch.context() as patched:

        def full(_number: int) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr(ndjson.os, "fsync", full)
        with pytest.raises(SinkUnreachable, match="cannot be written: No space left on device"):
            await sink.send([second])
    assert [line["id"] for line in _lines(path)] == [first.id]
    await sink.send([second])
    assert [line["id"] for line in _lines(path)] == [first.id, second.id]


async def test_two_may_append_to_one_file(tmp_path: Path) -> None:
    """No line of theirs is torn, and none is lost."""
    path = tmp_path / "events.ndjson"
    events = [made(payload="x" * 20_000) for _ in range(20)]
    sinks = [NdjsonSink(path), NdjsonSink(path)]
    await asyncio.gather(*(sinks[number % 2].send([event]) for number, event in enumerate(events)))
    assert sorted(line["id"] for line in _lines(path)) == sorted(event.id for event in events)


async def test_a_file_that_was_moved_aside_is_made_anew(tmp_path: Path) -> None:
    """As those do who rotate logs."""
    path, sink, first, second = (
        tmp_path / "events.ndjson",
        NdjsonSink(tmp_path / "events.ndjson"),
        made(),
        made(),
    )
    await sink.send([first])
    path.rename(tmp_path / "old.ndjson")
    await sink.send([second])
    assert [line["id"] for line in _lines(tmp_path / "old.ndjson")] == [first.id]
    assert [line["id"] for line in _lines(path)] == [second.id]


def _no_folder(path: Path) -> Path:
    return path / "missing" / "events.ndjson"


def _pipe(path: Path) -> Path:
    os.mkfifo(path / "pipe")
    return path / "pipe"


@pytest.mark.parametrize("place", [_no_folder, _pipe, Path], ids=["no folder", "pipe", "folder"])
async def test_a_place_that_cannot_be_written_is_named(
    place: Callable[[Path], Path], tmp_path: Path
) -> None:
    """It may be there later, so the events are sent again."""
    path = place(tmp_path)
    with pytest.raises(SinkUnreachable, match=f"{path} cannot be written: ") as raised:
        await NdjsonSink(path).send([made()])
    assert raised.value.retry_after is None


async def test_a_payload_without_json_writes_nothing(tmp_path: Path) -> None:
    """Neither the event nor those that come with it."""
    path = tmp_path / "events.ndjson"
    with pytest.raises(NonRetryable):
        await NdjsonSink(path).send([made(), made(payload=object())])
    assert not path.exists()


async def test_standard_output_of_a_test(capsys: pytest.CaptureFixture[str]) -> None:
    """One that has no file is written to as well, behind what was printed before."""
    event = made(process_id="zoë")
    print("before")
    await NdjsonSink("-").send([event])
    assert capsys.readouterr().out == f"before\n{structured(event).decode()}\n"


_PROGRAM = """
import asyncio, sys
from progressor.sinks.ndjson import NdjsonSink
from tests.sinks.made import made
print("before")
asyncio.run(NdjsonSink("-").send([made(payload="x" * int(sys.argv[1])) for _ in range(3)]))
"""


@pytest.mark.parametrize("is_file", [True, False], ids=["file", "pipe"])
def test_standard_output(is_file: bool, tmp_path: Path) -> None:
    """Lines that are longer than a pipe holds arrive whole, behind what was printed before."""
    command = [sys.executable, "-c", _PROGRAM, "100000"]
    path = tmp_path / "out"
    if is_file:
        with path.open("wb") as out:
            subprocess.run(command, stdout=out, check=True, cwd=ROOT)
    else:
        path.write_bytes(subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout)
    first, *lines = path.read_text().splitlines()
    assert first == "before"
    assert [len(json.loads(line)["data"]) for line in lines] == [100_000] * 3


async def test_a_disk_that_is_full_behind_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of which it took a part is ended before the next one begins."""
    torn, after = made(payload="x" * 100_000), made()
    written, write = 0, os.write

    def full(number: int, data: bytes) -> int:
        nonlocal written
        if written >= 10_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(number, data)
        written += done
        return done

    path = tmp_path / "out"
    with path.open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        sink = NdjsonSink("-")
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(SinkUnreachable, match="No space left"):
                await sink.send([torn])
        await sink.send([after])
    assert [line["id"] for line in _lines(path)] == [torn.id, after.id]


class _Piped(io.TextIOWrapper):
    """Standard output that is a pipe."""

    def __init__(self, number: int) -> None:
        super().__init__(os.fdopen(number, "wb", closefd=False))


async def test_a_reader_that_has_left_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so."""
    reading, writing = os.pipe()
    os.close(reading)
    with _Piped(writing) as out:
        monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(SinkUnreachable, match=r"its reader has left \(broken pipe\)"):
            await NdjsonSink("-").send([made()])
    os.close(writing)


async def test_standard_output_that_is_closed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a daemon."""
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SinkUnreachable, match="standard output cannot be written: it is closed"):
        await NdjsonSink("-").send([made()])


async def test_a_reader_that_does_not_read_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits may leave; the line that was begun is ended before the next one begins."""
    reading, writing = os.pipe()
    # It holds what is written at once, so it is full as soon as something is in it.
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, select.PIPE_BUF)
    torn, never, after = made(payload="x" * 300_000), made(), made()
    with _Piped(writing) as out:
        monkeypatch.setattr(sys, "stdout", out)
        sink = NdjsonSink("-")
        sending = asyncio.create_task(sink.send([torn, never]))
        await asyncio.to_thread(select.select, [reading], [], [])
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sink.send([never]), 0.01)
        reader = asyncio.create_task(asyncio.to_thread(_read_all, reading))
        await sink.send([after])
    os.close(writing)
    lines = (await reader).splitlines()
    assert [json.loads(line)["id"] for line in lines] == [torn.id, after.id]


def _read_all(number: int) -> bytes:
    with os.fdopen(number, "rb") as pipe:
        return pipe.read()


def test_options() -> None:
    """They open the sink; an error names the option."""
    assert repr(NdjsonOptions(type="ndjson", path="/var/log/e.ndjson").open()) == (
        "<NdjsonSink of /var/log/e.ndjson>"
    )
    assert repr(NdjsonOptions(type="ndjson", path="-").open()) == "<NdjsonSink of standard output>"
    for given_options, option in [
        ({"path": ""}, "path"),
        ({"path": "a\0"}, "path"),
        ({"path": "-", "x": 1}, "x"),
    ]:
        with pytest.raises(ValidationError) as raised:
            NdjsonOptions.model_validate({"type": "ndjson", **given_options})
        assert [fault["loc"] for fault in raised.value.errors()] == [(option,)]
    with pytest.raises(InvalidRequest, match="path must be that of a file"):
        NdjsonSink("")
