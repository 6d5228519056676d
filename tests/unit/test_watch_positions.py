"""Positions of watches: read back as they were written, those of older releases too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from progressor import InvalidRequest
from progressor.client.watches.positions import REMOVED, UNKNOWN, WatchPlace, mark_of
from progressor.model import Life

T0 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "place",
    [
        WatchPlace(Life(7, 12345), 11, 900, mark_of(T0)),
        WatchPlace(Life(7, -12345), 11, REMOVED, mark_of(datetime.max.replace(tzinfo=UTC))),
        WatchPlace(Life(7, None), 0, UNKNOWN),
    ],
)
def test_read_back(place: WatchPlace) -> None:
    """A position says all of its place."""
    assert WatchPlace.of(place.shown("ns", "p"), "ns", "p") == place


def test_of_an_older_release() -> None:
    """Without a mark it is the place of which nobody knows it, also if its name looks like a number."""
    place = WatchPlace(Life(7, 12345), 11, 900)
    *older, _, name = place.shown("ns", "p").split("-")
    assert WatchPlace.of("-".join((*older, name)), "ns", "p") == place
    with pytest.raises(InvalidRequest, match="another process"):
        WatchPlace.of("7-12345-11-900-12345678", "ns", "p")


def test_marks() -> None:
    """Two times have two, in any year; a mark that no time has is refused."""
    moments = [
        datetime.min.replace(tzinfo=UTC) + timedelta(microseconds=1),
        T0,
        T0 + timedelta(microseconds=1),
    ]
    assert mark_of(None) == 0
    assert sorted({mark_of(each) for each in moments} - {0}) == [mark_of(each) for each in moments]
    with pytest.raises(InvalidRequest, match="position of a change"):
        WatchPlace.of("7-12345-11-900-9999999999999999999-12345678", "ns", "p")
