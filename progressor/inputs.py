"""Checks of a user's input: each returns the value, or raises InvalidRequest that names the field."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from itertools import islice
from os import urandom
from typing import Final, Literal

from progressor.errors import InvalidRequest

MAX_ID_LENGTH: Final = 256
"""Characters of ids and names."""
RESERVED: Final = "progressor:"
"""The beginning of names of calls and of idempotency keys that the engine alone makes."""
SET_TIMER: Final = f"{RESERVED}set_timer"
UNSET_TIMER: Final = f"{RESERVED}unset_timer"
FIRE_TIMER: Final = f"{RESERVED}fire_timer"
DRY_RUN: Final = "dry_run"
MAX_TIMERS: Final = 32
"""The most timers of one process."""
HIGHEST_PRIORITY: Final = 10
"""The highest priority of a request, each step of which is worth a minute of waiting; -10 is the lowest."""
LONGEST_PATTERN: Final = 1000
"""Characters of a pattern for the details of broken processes."""
LAST_ID: Final = 2**63 - 1
"""The largest bigint of PostgreSQL."""
DEFAULT_TIMER: Final = "default"
"""The timer without a name, where an address needs one; no timer is named so."""

# Years. PostgreSQL and Python hold the moments between them in any time zone. A timer outside would fail
# the whole batch in which its step is saved.
FIRST_YEAR, LAST_YEAR = 1, 9999
LONGEST_DELAY = timedelta(days=365_000)
LONGEST_SECONDS = LONGEST_DELAY.total_seconds()
# Ten years, as for options: every clock and timer can count it.
_LONGEST_TIMEOUT = timedelta(days=3650)
NAMESPACE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
REDO_KEY: Final = f"{RESERVED}redo:"
"""The beginning of the key of a request that runs an ended task again; the id of that task follows."""
_TASK_NUMBER = re.compile("-?[0-9]{1,19}")
_NAMESPACE = re.compile(NAMESPACE_PATTERN)
# A backslash at the end that escapes nothing: LIKE refuses such a pattern.
_ENDS_ESCAPING = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
# Names; the text of an error lists no more.
_MOST_SHOWN = 10
# Names; each comparison costs some microseconds, and there may be any number of names.
_MOST_COMPARED = 300


@dataclass(frozen=True, slots=True)
class HistoryRange:
    """The events to load: at most `limit` (None: all), oldest (`forward`) or newest (`backward`) first.

    They begin behind the event whose id is `offset`: after it forward, before it backward; 0 begins with
    the first or the last one. So the last event id of a page is the offset of the next page, whatever is
    appended meanwhile. Raises InvalidRequest for an offset or limit outside a bigint or below 0, or for
    another direction.
    """

    offset: int = 0
    limit: int | None = None
    direction: Literal["forward", "backward"] = "forward"

    def __post_init__(self) -> None:
        if not _is_count(self.offset):
            raise InvalidRequest(
                f"HistoryRange.offset must be an event id, or 0: from 0 to {LAST_ID}", field="offset"
            )
        if self.limit is not None and not _is_count(self.limit):
            raise InvalidRequest(f"HistoryRange.limit must be from 0 to {LAST_ID}, or None", field="limit")
        if self.direction not in ("forward", "backward"):
            raise InvalidRequest("HistoryRange.direction must be forward or backward", field="direction")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LAST_ID


def check_namespace(name: object) -> str:
    """Return the name of a namespace; InvalidRequest if it is none."""
    if not isinstance(name, str):
        raise InvalidRequest(
            f"namespace must be the name of one, as text, not {name!r:.80}{_of_a_namespace(name)}",
            field="namespace",
        )
    if not _NAMESPACE.fullmatch(name) or len(name) > MAX_ID_LENGTH:
        raise InvalidRequest(
            f"namespace must match [A-Za-z0-9][A-Za-z0-9_.-]* in at most {MAX_ID_LENGTH} characters, "
            f"not {name!r:.80}",
            field="namespace",
        )
    return name


def _of_a_namespace(given: object) -> str:
    """Return what to give in place of a Namespace; empty for anything without such a name."""
    name = getattr(given, "name", None)
    if not isinstance(name, str) or not _NAMESPACE.fullmatch(name):
        return ""
    return (
        f": give its name, {name!r:.80} (`namespace.name`), "
        "or ask `client.process(namespace, process_id)`, which takes the Namespace"
    )


def check_text(field: str, value: object, *, limit: int = MAX_ID_LENGTH) -> str:
    """Return a text of 1 to `limit` characters that PostgreSQL can store; InvalidRequest if it is none."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{field} must be a text, not {type(value).__name__}", field=field)
    if not 1 <= len(value) <= limit:
        raise InvalidRequest(f"{field} must have 1 to {limit} characters, not {len(value)}", field=field)
    if "\x00" in value:
        raise InvalidRequest(f"{field} must not contain NUL characters", field=field)
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{field} must be valid Unicode (no lone surrogates)", field=field) from None
    return value


def new_lease() -> int:
    """Draw 62 random bits, which no other claim has."""
    return int.from_bytes(urandom(8)) >> 2


def new_key() -> str:
    """Return a key for a request whose caller gives none."""
    # 72 random bits are unique in one process; short, because each key stands in an index.
    return urlsafe_b64encode(urandom(9)).decode()


def check_key(value: object) -> str:
    """Return a key that a caller may give; InvalidRequest if it is none."""
    key = check_text("idempotency_key", value)
    if key.startswith(RESERVED):
        raise InvalidRequest(
            f"idempotency_key must not begin with {RESERVED!r}: such keys are the engine's own",
            field="idempotency_key",
        )
    return key


def redo_key(task_id: int) -> str:
    """Return the key of the request that runs this task again."""
    return f"{REDO_KEY}{task_id}"


def redone_with(key: str | None) -> int | None:
    """Return the task that the request of this key runs again; None if it is no redo."""
    number = "" if key is None or not key.startswith(REDO_KEY) else key.removeprefix(REDO_KEY)
    return int(number) if _TASK_NUMBER.fullmatch(number) else None


def given_key(key: str | None) -> str | None:
    """Return the key with which a caller repeats a request; None for a redo, which needs none."""
    return None if redone_with(key) is not None else key


def check_count(field: str, value: object, *, least: int, most: int = LAST_ID) -> int:
    """Return a whole number from `least` to `most`, by default any that is stored; else InvalidRequest."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequest(f"{field} must be a whole number, not {type(value).__name__}", field=field)
    if not least <= value <= most:
        bounds = f"{least} or more" if value < least and most == LAST_ID else f"from {least} to {most}"
        raise InvalidRequest(f"{field} must be {bounds}, not {value}", field=field)
    return value


def check_seconds(field: str, value: object) -> float:
    """Return a duration above 0 and up to ten years, in seconds; InvalidRequest if it is none."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise InvalidRequest(f"{field} must be a timedelta or a number of seconds above 0", field=field)
    if seconds > _LONGEST_TIMEOUT.total_seconds():
        raise InvalidRequest(f"{field} must be ten years or less", field=field)
    return float(seconds)


def check_expires(value: object) -> timedelta | None:
    """Return the time in which a request must begin, or None; InvalidRequest unless it is above 0."""
    if value is None:
        return None
    if not isinstance(value, timedelta):
        raise InvalidRequest(f"expires must be a timedelta, not {type(value).__name__}", field="expires")
    if not timedelta() < value <= LONGEST_DELAY:
        raise InvalidRequest(
            f"expires must be above 0 and at most {LONGEST_DELAY.days} days, not {value}", field="expires"
        )
    return value


def check_priority(value: object) -> int:
    """Return a priority; InvalidRequest if it is none."""
    return check_count("priority", value, least=-HIGHEST_PRIORITY, most=HIGHEST_PRIORITY)


def check_moment(field: str, value: object) -> datetime:
    """Return an aware datetime in UTC; InvalidRequest if it is none."""
    moment = in_utc(value)
    if moment is None:
        raise InvalidRequest(f"{field} must be an aware datetime (with tzinfo)", field=field)
    return moment


def check_since(since: object) -> tuple[datetime | None, timedelta | None]:
    """Return a time, or a duration up to now, at the place of each; InvalidRequest if it is neither."""
    if since is None:
        return None, None
    if not isinstance(since, timedelta):
        return check_moment("since", since), None
    if since < timedelta():
        raise InvalidRequest("since must not lie ahead", field="since")
    return None, min(since, LONGEST_DELAY)


def nearest_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the known names that are like this one, the nearest first; only the first 300 are compared."""
    return tuple(get_close_matches(name, list(islice(known, _MOST_COMPARED)), n=_MOST_COMPARED))


def all_names_like(name: str, known: Iterable[str]) -> str:
    """List all names that there are ever, for an error's text, the nearest first."""
    return ", ".join(_nearest_first(name, known))


def _nearest_first(name: str, known: Iterable[str]) -> list[str]:
    names = sorted(known)
    alike = nearest_names(name, names)
    return [*alike, *(each for each in names if each not in alike)]


def names_like(name: str, known: Iterable[str]) -> str:
    """List known names for an error's text, ten at most, the nearest first; "none" without any."""
    shown = _nearest_first(name, known)
    more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    return ", ".join(shown[:_MOST_SHOWN]) + more or "none"


def seconds_or_text(text: str) -> float | str:
    """Return the seconds of a duration's text if it is a number, else the text, which pydantic reads."""
    try:
        return float(text)
    except ValueError:
        return text


def is_moment(text: str) -> bool:
    """Return whether a text stands for a time, not for a duration: only a time has a hyphen in it."""
    return text[:1].isdigit() and "-" in text


def in_utc(value: object) -> datetime | None:
    """Return an aware datetime in UTC; None for anything else, or if its tzinfo raises."""
    try:
        if not isinstance(value, datetime) or value.utcoffset() is None:
            return None
        return value.astimezone(UTC)
    except Exception:  # noqa: BLE001 - a tzinfo is the user's code
        return None


def can_be_stored(moment: datetime) -> bool:
    """Return whether PostgreSQL and Python can hold a moment in UTC, in any time zone."""
    return FIRST_YEAR < moment.year < LAST_YEAR


def check_timer_filter(wanted: object) -> str:
    """Return the timers that a search is for: `none`, `overdue`, `held`, or a name, '' for no name.

    Raise InvalidRequest if it is no text, or no timer can have this name.
    """
    if not isinstance(wanted, str) or not wanted:
        raise InvalidRequest(
            "timer must be none, overdue, held, or the name of a timer "
            f"({DEFAULT_TIMER}: the one without a name)",
            field="timer",
        )
    return "" if wanted == DEFAULT_TIMER else check_timer(wanted)


def check_timer(name: object) -> str:
    """Return the name of a timer, '' for the one without; InvalidRequest if no timer can have it."""
    if name == "":
        return ""
    if not isinstance(name, str):
        due = ": a delay is given as after=, a moment as at="
        hint = due if isinstance(name, timedelta | datetime) else ""
        raise InvalidRequest(
            f"the name of a timer must be a text, not {type(name).__name__}{hint}", field="timer"
        )
    if len(name) > MAX_ID_LENGTH:
        raise InvalidRequest(
            f"the name of a timer must have at most {MAX_ID_LENGTH} characters, not {len(name)}",
            field="timer",
        )
    if name.startswith((RESERVED, "~")):
        raise InvalidRequest(
            f"the name of a timer must not begin with {RESERVED!r} or '~': these are the engine's own",
            field="timer",
        )
    if name == DEFAULT_TIMER:
        raise InvalidRequest(
            f"no timer may be named {DEFAULT_TIMER!r}: it stands for the timer without a name",
            field="timer",
        )
    if "\x00" in name or (not name.isascii() and name != name.encode(errors="replace").decode()):
        raise InvalidRequest(
            "the name of a timer must be valid Unicode, without NUL characters", field="timer"
        )
    return name


def check_bulk_filter(detail_like: str | None, handler: str | None) -> None:
    """Raise InvalidRequest for a filter of a bulk that no broken process could match."""
    if detail_like is not None:
        check_text("detail_like", detail_like, limit=LONGEST_PATTERN)
        if _ENDS_ESCAPING.search(detail_like):
            raise InvalidRequest(
                "detail_like must not end with a backslash that escapes nothing", field="detail_like"
            )
    if handler is not None:
        check_text("handler", handler)
