"""The share of the tests that `make test` runs, where one test stands for very many alike.

Rule: the share is the same each time, so that a failure comes from the change. `make test-matrix` leaves
nothing out, and neither does a run that names its tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

import pytest

from tests.model.profiles import WHOLE

MARKER = "share(part): make test runs one of so many of its variants"
# An acceptance test can run in six ways, of which two stay: other ones for each test.
_WAYS = ("mode", "side")
_PART_OF_WAYS = 3


def left_out(config: pytest.Config, items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that this run does not need."""
    if WHOLE or any("::" in each for each in config.args):
        return []
    return [item for item in items if isinstance(item, pytest.Function) and not _is_in_share(item)]


def _is_in_share(item: pytest.Function) -> bool:
    places: dict[str, int] = item.callspec.indices if hasattr(item, "callspec") else {}
    marker = item.get_closest_marker("share")
    if marker is not None and places:
        return crc32(item.nodeid.encode()) % marker.args[0] == 0
    if "acceptance" not in item.path.parts or "mode" not in places:
        return True
    way = 2 * places["mode"] + places["side"] if "side" in places else places["mode"]
    others = {name: place for name, place in places.items() if name not in _WAYS}
    return (way + crc32(f"{item.originalname} {others}".encode())) % _PART_OF_WAYS == 0
