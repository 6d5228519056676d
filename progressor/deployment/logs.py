"""Logs of the commands: readable lines in a terminal, JSON lines everywhere else.

The code base logs to the standard library's loggers, constant messages with fields through `extra`; this
is the only module that knows structlog. Rule: passwords are struck out of every line, also of other
libraries, and a traceback shows code, never the values of variables. A line that a handler writes, by the
standard library or by structlog, names its step.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Literal, TextIO

import structlog
from structlog.dev import Column, ConsoleRenderer, KeyValueColumnFormatter, plain_traceback
from structlog.stdlib import (
    BoundLogger,
    ExtraAdder,
    PositionalArgumentsFormatter,
    ProcessorFormatter,
    add_log_level,
    add_logger_name,
    filter_by_level,
)
from structlog.types import EventDict, Processor, WrappedLogger

from progressor.deployment.log_writer import LogWriter
from progressor.handlers.running.log_fields import log_fields
from progressor.loggers import message_of, one_word, without_passwords

# Libraries whose "info" is about their own internals: they log from "warning" on.
_CHATTY = ("alembic", "asyncio", "sqlalchemy", "psycopg")
_LEVELS = {
    "debug": "\x1b[2m",
    "info": "\x1b[32m",
    "warning": "\x1b[33m",
    "error": "\x1b[31m",
    "critical": "\x1b[31;1m",
}
_DIM, _BOLD, _CYAN, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[36m", "\x1b[0m"


def set_up(
    *,
    level: str = "info",
    form: Literal["auto", "console", "json"] = "auto",
    stream: TextIO | None = None,
    child: int | None = None,
) -> None:
    """Send all logs and warnings of this process to `stream` (default: stderr), and to no other handler.

    No line makes its caller wait. Each line is one write and names the child that this OS process is, so
    that many may share a stream.
    """
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    colours = terminal and "NO_COLOR" not in os.environ
    readable = form == "console" or (form == "auto" and terminal)
    facts = [*_facts(readable=readable), *_of_child(child)]
    handler = LogWriter(target)
    handler.setFormatter(
        ProcessorFormatter(
            pass_foreign_args=True,
            use_get_message=False,
            foreign_pre_chain=[
                # Our fields are set first, so that no field of a caller can pass for one of them.
                _constant_message,
                structlog.processors.EventRenamer("message"),
                ExtraAdder(),
                *facts,
            ],
            processors=[
                ProcessorFormatter.remove_processors_meta,
                _of_step,
                *(_console(colours=colours) if readable else _json()),
            ],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.flush()
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(capture=True)
    if not structlog.is_configured() or structlog.get_config()["logger_factory"] is _logger_named:
        _send_structlog(facts)


def flush() -> None:
    """Wait until the lines logged so far are written, for about two seconds at most."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def _facts(*, readable: bool) -> list[Processor]:
    fmt = "%H:%M:%S" if readable else "iso"
    return [
        add_log_level,
        add_logger_name,
        structlog.processors.TimeStamper(fmt=fmt, utc=not readable, key="timestamp"),
    ]


def _send_structlog(facts: Sequence[Processor]) -> None:
    """Have the lines of structlog, for code that has not set it up itself, go where all others go."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            filter_by_level,
            PositionalArgumentsFormatter(),
            structlog.processors.EventRenamer("message"),
            *facts,
            ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=BoundLogger,
        logger_factory=_logger_named,
    )


def _logger_named(*names: str) -> logging.Logger:
    """Return the logger of a name; without one that of the module whose code logs.

    LoggerFactory of structlog would set the class of all loggers of this OS process.
    """
    if names:
        return logging.getLogger(names[0])
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - as logging itself finds its caller
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in (
        "structlog",
        "progressor",
    ):
        frame = frame.f_back
    return logging.getLogger(None if frame is None else frame.f_globals.get("__name__"))


def _of_step(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the step whose code writes the line, unless the line names another one."""
    fields = log_fields()
    if fields and event.get("task_id", fields["task_id"]) == fields["task_id"]:
        for name, value in fields.items():
            event.setdefault(name, value)
    return event


def _constant_message(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace the message by its constant part; its fields stand apart."""
    record = event["_record"]
    record.args = event.pop("positional_args")
    event["event"] = message_of(record)
    record.args = ()
    return event


def _of_child(number: int | None) -> list[Processor]:
    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["child"] = number
        return event

    return [] if number is None else [add]


def _json() -> list[Processor]:
    return [
        structlog.processors.format_exc_info,
        _strike_passwords,
        structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
    ]


def _console(*, colours: bool) -> list[Processor]:
    columns = [
        Column("timestamp", _column(_DIM, colours=colours)),
        Column(
            "level", lambda key, level: _column(_LEVELS.get(str(level), ""), colours=colours)(key, level)
        ),
        Column("message", _column(_BOLD, colours=colours)),
        Column("", _column("", colours=colours, named=True)),
    ]
    return [
        _drop_logger_name,
        structlog.processors.format_exc_info,
        _strike_passwords,
        ConsoleRenderer(columns=columns, exception_formatter=plain_traceback, sort_keys=False),
    ]


def _column(style: str, *, colours: bool, named: bool = False) -> KeyValueColumnFormatter:
    key_style = _CYAN if colours else ""
    return KeyValueColumnFormatter(
        key_style=key_style if named else None,
        value_style=style if colours else "",
        reset_style=_RESET if colours else "",
        value_repr=one_word if named else str,
    )


def _drop_logger_name(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event.pop("logger", None)
    return event


def _strike_passwords(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = without_passwords(value)
    return event
