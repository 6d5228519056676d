"""Load: what scanners noted of each minute of the last day, in charts that zoom, and as a table.

Rule: a browser gets the numbers that it draws, and nothing else. Times are in the zone of all pages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from itertools import groupby
from typing import NamedTuple

from starlette.responses import Response

from progressor.errors import InvalidRequest
from progressor.http.server.auth.scopes import require
from progressor.monitoring import LoadSample
from progressor.rights import Scope
from progressor.web.page import MISTYPED, PageRequest, Pages
from progressor.web.pages.namespaces.namespace import names_for, offered_namespaces

pages = Pages()

_MINUTE = timedelta(minutes=1)
# Samples that a page reads: of a day, those of 34 namespaces.
_MOST_SAMPLES = 50_000


class LoadSpan(NamedTuple):
    """A time up to now, and the time that a row of its table is of."""

    name: str
    within: timedelta
    row: timedelta


SPANS: tuple[LoadSpan, ...] = (
    LoadSpan("1h", timedelta(hours=1), timedelta(minutes=5)),
    LoadSpan("6h", timedelta(hours=6), timedelta(minutes=15)),
    LoadSpan("24h", timedelta(hours=24), timedelta(hours=1)),
)


@pages.get("/load", scope=Scope.PROCESSES_READ)
async def load(request: PageRequest) -> Response:
    """Return the load of one namespace, or of all that the caller sees together."""
    namespace = request.query_params.get("namespace", "").strip()
    spans, span, zone = SPANS, SPANS[0], request.preferences.zone
    samples, problem = list[LoadSample](), None
    try:
        names = await _names(request, namespace)
        spans = fitting(len(names))
        span = span_of(request.query_params.get("since", "").strip(), spans)
        samples = await request.server.client.reader.samples(names, within=span.within)
    except MISTYPED as error:
        problem = request.problem_of_filter(error)
    return request.page(
        "load.html",
        "Load",
        problem=problem,
        namespace=namespace,
        span=span,
        spans=spans,
        offered=await offered_namespaces(request, Scope.PROCESSES_READ),
        samples=samples,
        charts=LoadCharts.of(samples, zone),
        rows=rows_of(samples, span.row, zone),
    )


async def _names(request: PageRequest, namespace: str) -> list[str]:
    if not namespace:
        return await names_for(request, Scope.PROCESSES_READ)
    require(request.caller, Scope.PROCESSES_READ, namespace)
    # It raises NamespaceNotFound.
    return [(await request.server.client.published(namespace)).name]


def fitting(namespaces: int) -> tuple[LoadSpan, ...]:
    """Return the spans of which a page reads the samples of so many namespaces; an hour it always reads."""
    return tuple(
        each for each in SPANS if each is SPANS[0] or namespaces * (each.within // _MINUTE) <= _MOST_SAMPLES
    )


def span_of(name: str, spans: Sequence[LoadSpan]) -> LoadSpan:
    """Return the span of this name, the widest of these if none is stated; raise InvalidRequest."""
    found = [each for each in spans if each.name == name or not name]
    if found:
        return found[-1]
    rule = f"since must be one of {', '.join(each.name for each in spans)}"
    if any(each.name == name for each in SPANS):
        rule += " for so many namespaces together: name one of them to see more"
    raise InvalidRequest(rule, field="since")


class LoadCharts(NamedTuple):
    """Samples as charts draw them, in JSON: for each figure a value a minute, null where none was noted.

    `first` is the first minute. `offsets` say by how many seconds the zone is ahead of UTC, and since when.
    Both count seconds of UTC since 1970.
    """

    first: int
    offsets: str
    values: Mapping[str, str]

    @classmethod
    def of(cls, samples: Sequence[LoadSample], zone: tzinfo) -> LoadCharts | None:
        """Return the charts of these samples; None for fewer than two, of which no line is drawn."""
        if len(samples) <= 1:
            return None
        first, minutes = samples[0].at, (samples[-1].at - samples[0].at) // _MINUTE + 1
        noted = {(each.at - first) // _MINUTE: each for each in samples}
        return cls(
            int(first.timestamp()),
            _json(_offsets(samples, zone)),
            {
                name: _json([getattr(noted.get(minute), name, None) for minute in range(minutes)])
                for name in ("steps", "waiting", "broken", "running", "timers")
            },
        )


def _offsets(samples: Sequence[LoadSample], zone: tzinfo) -> list[tuple[int, int]]:
    offsets = groupby(samples, lambda each: _ahead(each.at, zone))
    return [(int(next(those).at.timestamp()), offset) for offset, those in offsets]


def _ahead(moment: datetime, zone: tzinfo) -> int:
    """Return the seconds by which the zone is ahead of UTC at a moment."""
    offset = moment.astimezone(zone).utcoffset() or timedelta()
    return int(offset.total_seconds())


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def rows_of(samples: Sequence[LoadSample], row: timedelta, zone: tzinfo) -> list[LoadSample]:
    """Return the load in rows of such a time, which begin by the clock of the zone.

    Of the steps a minute a row has the average, of all else the most.
    """

    def begin(sample: LoadSample) -> datetime:
        seconds = int(sample.at.timestamp()) + _ahead(sample.at, zone)
        return sample.at - timedelta(seconds=seconds % int(row.total_seconds()))

    return [_together(at, list(those)) for at, those in groupby(samples, begin)]


def _together(at: datetime, samples: Sequence[LoadSample]) -> LoadSample:
    slots = [each.slots for each in samples if each.slots is not None]
    return LoadSample(
        at=at,
        broken=max(each.broken for each in samples),
        waiting=max(each.waiting for each in samples),
        timers=max(each.timers for each in samples),
        running=max(each.running for each in samples),
        steps=round(sum(each.steps for each in samples) / len(samples)),
        slots=max(slots, default=None),
        age=max(each.age for each in samples),
    )
