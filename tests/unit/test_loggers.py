"""The loggers of the package, under handlers that print messages alone and under those of the commands."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from progressor.deployment import logs
from progressor.handlers.perform import perform
from progressor.handlers.running.deadlines import Deadlines
from progressor.loggers import Logger, message_of
from progressor.model import Failure
from progressor.outages import Outage, OutageLines

log = Logger("progressor.test")
SAYS = OutageLines("database not available", "database still not available", "database available again")


@pytest.fixture
def printed() -> Iterator[io.StringIO]:
    """A user's own handler of the root logger, which prints messages."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


def test_a_plain_handler_prints_the_fields(printed: io.StringIO) -> None:
    """They stand after the message; a value that could be misread is quoted."""
    log.warning("process broke", extra={"namespace": "shop", "process_id": "a b\nERROR no", "task_id": 7})
    log.warning("no fields")
    assert printed.getvalue() == (
        "WARNING process broke namespace=shop process_id='a b\\nERROR no' task_id=7\nWARNING no fields\n"
    )


def test_an_outage_prints_its_fields(printed: io.StringIO) -> None:
    """Where the server is, and the cause."""
    Outage(Logger("progressor.test"), SAYS, host="db").failed("refused")
    assert printed.getvalue() == "WARNING database not available host=db cause=refused\n"


def test_no_plain_line_has_a_password(printed: io.StringIO) -> None:
    """A cause may quote a connection string, a caller may hand in a token."""
    token = "prg_0123456789abcdef_" + "5" * 64
    log.error("not available", extra={"cause": "of postgresql://me:hush@db/x", "key": token})
    assert printed.getvalue() == (
        "ERROR not available cause='of postgresql://me:***@db/x' key=prg_0123456789abcdef_***\n"
    )


def test_who_groups_by_message_gets_a_constant_one(caplog: pytest.LogCaptureFixture) -> None:
    """`msg` of a record has no value in it, and `message_of` is the message as it was logged."""
    for process_id in ("a%s", "b"):
        log.warning("process broke", extra={"process_id": process_id})
    assert {record.msg for record in caplog.records} == {"process broke %s"}
    assert {message_of(record) for record in caplog.records} == {"process broke"}
    assert [record.getMessage() for record in caplog.records] == [
        "process broke process_id=a%s",
        "process broke process_id=b",
    ]


def test_a_record_names_the_place_that_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Not the adapter's."""
    log.warning("here", extra={"namespace": "shop"})
    try:
        int("x")
    except ValueError:
        log.exception("there", extra={"namespace": "shop"})
    assert {record.filename for record in caplog.records} == {Path(__file__).name}
    assert caplog.records[1].exc_info


@pytest.fixture
def taken_names() -> Iterator[None]:
    """A user's record factory whose records have an attribute with the name of a field."""
    before = logging.getLogRecordFactory()

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = before(*args, **kwargs)
        record.namespace = "production"
        return record

    logging.setLogRecordFactory(factory)
    yield
    logging.setLogRecordFactory(before)


def test_a_name_that_a_record_factory_has_taken_keeps_no_line_away(
    taken_names: None, printed: io.StringIO, caplog: pytest.LogCaptureFixture
) -> None:
    """The line is logged with its fields in the message, its place and its error."""
    try:
        int("x")
    except ValueError:
        log.exception("process broke", extra={"namespace": "shop"})
    assert printed.getvalue().startswith("ERROR process broke namespace=shop\nTraceback")
    (record,) = caplog.records
    assert record.filename == Path(__file__).name
    assert record.exc_info
    assert record.exc_info[0] is ValueError


class _Raising(logging.Handler):
    """A user's handler whose server is gone."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("no answer of amqp://me:hush@logs")


@pytest.fixture
def raising() -> Iterator[None]:
    """Nobody gets a line: the only handler raises."""
    handler = _Raising()
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)


def test_a_handler_that_raises_does_not_break_who_logs(
    raising: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its error and the line go to stderr, without passwords."""
    log.warning("not available", extra={"cause": "of postgresql://me:hush@db/x"})
    log.warning("no fields")
    told = capsys.readouterr().err
    assert "ConnectionError: no answer of amqp://me:***@logs" in told
    assert "Lost: not available cause=of postgresql://me:***@db/x\n" in told.replace("'", "")
    assert "Lost: no fields\n" in told
    assert "hush" not in told


def test_a_line_for_which_there_is_no_stderr_either_is_dropped(
    raising: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed, or none at all."""
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        monkeypatch.setattr(sys, "stderr", stream)
        log.warning("process broke", extra={"process_id": "acme"})


async def test_a_handler_that_raises_keeps_no_failed_step_from_its_outcome(
    raising: None, make_task: Any, make_snapshot: Any
) -> None:
    """The step has failed with its own error, and the worker goes on."""

    class Failing:
        async def process(self, task: object, process: object) -> Any:
            raise ValueError("no")

    outcome = await perform(Failing(), make_snapshot(), make_task(), Deadlines(5))
    assert isinstance(outcome, Failure)
    assert outcome.error == "ValueError: no"


@pytest.mark.parametrize("form", ["console", "json"])
def test_the_commands_print_no_field_twice(form: str) -> None:
    """The logs of the commands have fields of their own, and other libraries' messages whole."""
    stream = io.StringIO()
    logs.set_up(stream=stream, form=form)  # type: ignore[arg-type]
    log.warning("process broke", extra={"process_id": "acme"})
    logging.getLogger("other").warning("%s of %s", 1, 2)
    ours, others = stream.getvalue().splitlines()
    assert ours.count("acme") == 1
    if form == "json":
        assert json.loads(ours)["message"] == "process broke"
    assert "1 of 2" in others


def test_a_level_that_is_off_costs_no_record(caplog: pytest.LogCaptureFixture) -> None:
    """As with any logger."""
    log.debug("details", extra={"namespace": "shop"})
    assert caplog.records == []


async def test_a_failed_handler_is_printed_with_its_process(
    printed: io.StringIO, make_task: Any, make_snapshot: Any
) -> None:
    """Who has set up no more than a handler finds the process, the task and the traceback."""

    class Failing:
        async def process(self, task: object, process: object) -> Any:
            raise ValueError("no")

    await perform(Failing(), make_snapshot(), make_task(), Deadlines(5))
    line, traceback, *_ = printed.getvalue().splitlines()
    assert line == "ERROR handler failed namespace=billing process_id=acme task_id=7 task_type=call"
    assert traceback.startswith("Traceback")
