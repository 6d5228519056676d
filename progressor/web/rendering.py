"""Texts of pages: templates, and how times, counts and values stand in them.

Rule: a value is text before it reaches a browser, so no number loses a digit there, and it is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from progressor.calendars import json_of
from progressor.client.failure_groups import bulk_filter_of, pattern_of
from progressor.client.results import TraceEntry
from progressor.handlers.schedules import schedule_of
from progressor.http.wire.models import plain
from progressor.http.wire.paths import segment_of
from progressor.messages.message import sent_by
from progressor.model import TaskType, Timer
from progressor.texts import (
    changed_lines,
    count,
    duration,
    number_of,
    pretty,
    recurs_text,
    rule_text,
    short,
    visible,
)
from progressor.web.preferences import BrowserPreferences, mark_of
from progressor.web.static import known_files

# Characters of a value that a page shows at once; the rest is a page of its own.
LONGEST_VALUE = 8192
_MOST_BYTES = 2048
_SECOND = 1000
# A line has two points at least.
_FEWEST = 2
_UPCOMING = 5


@dataclass(frozen=True, slots=True)
class Rendering:
    """The rendering of one page, in the zone and theme of its browser."""

    preferences: BrowserPreferences

    def text(self, template: str, **values: Any) -> str:
        """Return the HTML of a template."""
        return _templates().get_template(template).render(**values, **self._tools(values["base"]))

    def _tools(self, base: str) -> Mapping[str, Any]:
        return {
            "preferences": self.preferences,
            "now": datetime.now(UTC),
            "moment": self.moment,
            "ago": self.ago,
            "process_link": lambda namespace, process_id: process_path(base, namespace, process_id),
            "static": lambda name: f"{base}static/{known_files()[name].name}",
        }

    def clock(self, moment: datetime) -> str:
        """Return a time in the browser's zone, to the second, with the zone's name."""
        return moment.astimezone(self.preferences.zone).strftime("%Y-%m-%d %H:%M:%S %Z")

    def moment(self, moment: datetime | None) -> Markup:
        """Return a time as an element; nothing for None."""
        if moment is None:
            return Markup()
        local = moment.astimezone(self.preferences.zone)
        return _time(moment, local.strftime("%Y-%m-%d %H:%M:%S"), self.clock(moment))

    def ago(self, moment: datetime | None) -> Markup:
        """Return how long ago a time is, or how far ahead, as an element; nothing for None."""
        if moment is None:
            return Markup()
        age = datetime.now(UTC) - moment
        text = f"{duration(age)} ago" if age >= timedelta() else f"in {duration(-age)}"
        return _time(moment, text, self.clock(moment))


def _time(moment: datetime, text: str, title: str) -> Markup:
    exact = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact, title, text)


def process_path(base: str, namespace: str, process_id: str) -> str:
    """Return the address of a process's page."""
    return f"{base}processes/{segment_of(namespace)}/{segment_of(process_id)}"


def rule_of(timer: Timer) -> str | None:
    """Return the rule of a recurring timer on one line; None if it does not recur."""
    if timer.nominal is None:
        return None
    known = None if timer.every is None else rule_text(json_of(timer.every))
    return "by a rule of a newer release" if known is None else f"every {known}"


def given_text(entry: TraceEntry) -> str:
    """Return the arguments of a task on one line; of a timer that recurs its rule."""
    rule = recurs_text(entry.args) if entry.task_type is TaskType.TIMEOUT else None
    return rule or short(entry.args, 80)


def value_text(value: Any) -> str:
    """Return a value of a task or an event as text, cut where it is too long for a page."""
    return cut(pretty(plain(value)))


def difference(before: str, after: str) -> str:
    """Return the lines that differ, cut where they are too long for a page."""
    return cut(changed_lines(before, after))


def cut(text: str) -> str:
    """Return a text, cut where it is too long for a page."""
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def bytes_text(data: bytes | None) -> str:
    """Return the first bytes in hexadecimal, and how many there are."""
    if data is None:
        return ""
    more = " …" if len(data) > _MOST_BYTES else ""
    return f"{data[:_MOST_BYTES].hex(' ')}{more} ({len(data):,} bytes)"


def with_code(text: str) -> Markup:
    """Return a text in which what stands between backticks is code."""
    plain_part, code = Markup("{}"), Markup("<code>{}</code>")
    parts = enumerate(text.split("`"))
    return Markup().join((code if at % 2 else plain_part).format(part) for at, part in parts)


def milliseconds(time: timedelta) -> str:
    """Return a short time as text, in milliseconds up to a second."""
    found = time / timedelta(milliseconds=1)
    return f"{found:.1f} ms" if found < _SECOND else duration(time)


def upcoming(timer: Timer) -> list[datetime]:
    """Return the next times of a recurring timer, five at most; its own alone if its steps decide."""
    found: list[datetime] = []
    while timer.nominal is not None and len(found) < _UPCOMING:
        found.append(timer.nominal)
        timer = timer._replace(nominal=timer.next)
    return found


class Line(NamedTuple):
    """A line of a chart: its points for an SVG of 100 by 24, and the highest value of all."""

    points: str
    highest: int


def line_of(values: Sequence[int]) -> Line | None:
    """Return the line through these values, the oldest on the left; None for fewer than two."""
    if len(values) < _FEWEST:
        return None
    highest = max(*values, 1)
    step = 100 / (len(values) - 1)
    places = (f"{place * step:.1f},{23 - 22 * value / highest:.1f}" for place, value in enumerate(values))
    return Line(" ".join(places), max(values))


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("progressor.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": count,
        "duration": duration,
        "pretty": pretty,
        "short": short,
        "visible": lambda text: visible(text, keep_lines=True),
        "segment": segment_of,
        "rule_of": rule_of,
        "given": given_text,
        "value": value_text,
        "many": number_of,
        "with_code": with_code,
        "pattern": pattern_of,
        "mark": mark_of,
        "sent_by": sent_by,
        "schedule_of": schedule_of,
        "bulk_filter": bulk_filter_of,
        "cut": cut,
        "milliseconds": milliseconds,
        "bytes": bytes_text,
        "line": line_of,
        "upcoming": upcoming,
    }
    return environment
