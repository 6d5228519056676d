"""The logs of the commands."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from typing import Any, Literal

import pytest

from progressor.deployment import logs

log = logging.getLogger("progressor.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _json_lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_file_gets_json_lines_with_all_fields() -> None:
    """One object a line, with the time, and control characters escaped."""
    stream = io.StringIO()
    logs.set_up(stream=stream)
    log.warning("process broke", extra={"namespace": "shop", "process_id": "pä\n1", "task_id": 7})
    (line,) = _json_lines(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", str(line.pop("timestamp")))
    assert line == {
        "message": "process broke",
        "namespace": "shop",
        "process_id": "pä\n1",
        "task_id": 7,
        "level": "warning",
        "logger": "progressor.test",
    }


@pytest.mark.parametrize("form", ["console", "json"])
def test_each_line_names_the_child_and_is_one_write(form: Literal["console", "json"]) -> None:
    """Where many write to one file or pipe their lines do not mix, however long they are."""
    written: list[bytes] = []

    class File(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any, /) -> int:
            written.append(bytes(data))
            return len(data)

    logs.set_up(stream=io.TextIOWrapper(io.BufferedWriter(File()), line_buffering=True), form=form, child=3)
    for length in (1, 5_000, 50_000):
        log.info("claim failed", extra={"cause": "x" * length})
    assert len(written) == 3
    for line in written:
        assert line.count(b"\n") == 1
        assert line.endswith(b"\n")
        assert (b"child=3" if form == "console" else b'"child": 3') in line


def test_a_terminal_gets_readable_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing that moves its cursor."""
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    logs.set_up(stream=stream)
    log.warning("process broke", extra={"namespace": "shop", "process_id": "a b\x1b[2J", "task_id": 7})
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d warning process broke namespace=shop process_id='a b\\x1b\[2J' task_id=7\n",
        stream.getvalue(),
    )


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file gets none."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    for stream, coloured in ((Terminal(), True), (io.StringIO(), False)):
        logs.set_up(stream=stream, form="console")
        log.info("hello", extra={"n": 1})
        assert ("\x1b[" in stream.getvalue()) is coloured


@pytest.mark.parametrize("form", ["console", "json"])
def test_tracebacks_show_code_and_no_variables(form: str) -> None:
    """What a variable holds may be secret."""
    stream = io.StringIO()
    logs.set_up(stream=stream, form=form)  # type: ignore[arg-type]
    card = "4111-1111"
    try:
        raise ValueError("the card was refused")  # noqa: TRY301 - for its traceback
    except ValueError:
        log.exception("handler failed", extra={"process_id": "p1"})
    text = stream.getvalue()
    shown = _json_lines(stream)[0]["exception"] if form == "json" else text
    assert 'raise ValueError("the card was refused")' in str(shown)
    assert "\n" in str(shown)
    assert card not in text.replace(f'card = "{card}"', "")


@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:s3cr%40et@h:5432/x",
        "postgresql+psycopg://me:s3cr@et@h/x",
        "host=h password=s3cret user=me",
        "host=h password = 's3c r\\'et' user=me",
        "postgresql://h/db?user=me&password=s3cret&sslmode=on",
        "sslpassword=s3cret",
    ],
)
def test_passwords_are_struck_out(form: str, dsn: str) -> None:
    """In every spelling of a DSN, in messages, fields and tracebacks."""
    stream = io.StringIO()
    logs.set_up(stream=stream, form=form)  # type: ignore[arg-type]
    try:
        raise OSError(f"cannot reach {dsn}")  # noqa: TRY301 - for its traceback
    except OSError:
        log.exception("lost %s", dsn, extra={"dsn": dsn})
    said = re.sub(r"raise OSError.*", "", stream.getvalue())
    assert "***" in said
    assert "s3c" not in said
    assert "et@" not in said


def test_fields_cannot_pass_for_ours() -> None:
    """A field that is called like one of the line's own does not replace it."""
    stream = io.StringIO()
    logs.set_up(stream=stream)
    log.info("hello", extra={"level": "critical", "timestamp": "never", "logger": "other", "event": "x"})
    (line,) = _json_lines(stream)
    assert (line["message"], line["level"], line["logger"]) == ("hello", "info", "progressor.test")
    assert line["timestamp"] != "never"


def test_levels() -> None:
    """What is less than the level is left out, and so is the inner life of libraries."""
    stream = io.StringIO()
    logs.set_up(stream=stream, level="info")
    log.debug("too much")
    logging.getLogger("sqlalchemy.engine").info("its own inner life")
    log.info("enough")
    assert [line["message"] for line in _json_lines(stream)] == ["enough"]


def test_warnings_are_logged() -> None:
    """As lines like all others."""
    stream = io.StringIO()
    logs.set_up(stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("soon gone", stacklevel=1)
    (line,) = _json_lines(stream)
    assert (line["logger"], "soon gone" in str(line["message"])) == ("py.warnings", True)
