"""The loggers of the package: those of the standard library, whose messages end with their fields.

A user's program may print messages alone, as `%(message)s` does, and must still show which process broke.
So the fields are an argument of the message, and only a handler that prints it formats them. Rule:
passwords are struck out, no value can look like another line, and no logging of the user breaks a step.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

# A URL's password may hold anything up to the last @ before the host; in key=value it may be quoted.
_PASSWORDS = re.compile(
    r"(?P<url>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/]+(?=@)"
    r"|(?P<key>\b(?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s'&]+)"
    r"|(?P<token>\bprg_[0-9a-f]{16}_)[0-9a-f]+",
    re.IGNORECASE,
)
# Each match of the expression contains one of these; to look for them costs a fraction of the expression.
_HINTS = ("://", "password", "prg_")


class Logger(logging.LoggerAdapter[logging.Logger]):
    """The logger of one name; `extra` holds the fields of a line."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name))

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message and its fields, at the place of the caller; raise nothing that logging raises."""
        fields = kwargs.get("extra")
        if fields:
            args = (*args, _Fields(str(msg), fields))
            msg = f"{msg} %s"
        try:
            self.logger.log(level, msg, *args, **kwargs, stacklevel=2)
        except Exception:  # noqa: BLE001 - of a record factory, a filter or a handler: the user's code
            is_logged = False
        else:
            is_logged = True
        if not is_logged:
            # Behind the `except`, in which `exc_info` would name the wrong error.
            self._log_again(level, msg, args, {**kwargs, "extra": None})

    def _log_again(self, level: int, msg: object, args: tuple[object, ...], kwargs: dict[str, Any]) -> None:
        """Log without attributes of the fields, which may be taken by others; or else to stderr."""
        try:
            self.logger.log(level, msg, *args, **kwargs, stacklevel=3)
        except Exception:  # noqa: BLE001 - as above
            # As `logging.Handler.handleError` does.
            with suppress(Exception):
                if logging.raiseExceptions and sys.stderr:
                    lost = f"--- Logging error ---\n{traceback.format_exc()}Lost: {str(msg) % args}\n"
                    sys.stderr.write(without_passwords(lost))


class _Fields(NamedTuple):
    """The fields of a line, as an argument of its message: formatted only by handlers that print it."""

    message: str
    values: Mapping[str, object]

    def __str__(self) -> str:
        return without_passwords(" ".join(f"{key}={one_word(value)}" for key, value in self.values.items()))


def enable() -> None:
    """Enable the loggers of the package: `dictConfig` of a user disables those that it does not name."""
    for name, logger in logging.Logger.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.startswith("progressor."):
            logger.disabled = False


def message_of(record: logging.LogRecord) -> str:
    """Return the message of a record without the fields that `Logger` adds to it."""
    match record.args:
        case (_Fields() as fields,):
            return fields.message
        case _:
            return record.getMessage()


def one_word(value: object) -> str:
    """Return a value as it is, or in quotes if it would be misread or would move the cursor."""
    text = str(value)
    plain = text.isprintable() and " " not in text and text
    return text if plain else repr(text)


def without_passwords(text: str) -> str:
    """Return a text without the passwords of connection strings and the secrets of tokens."""
    folded = text.casefold()
    if not any(hint in folded for hint in _HINTS):
        return text
    return _PASSWORDS.sub(lambda found: (found["url"] or found["key"] or found["token"]) + "***", text)
