"""Preferences of a browser, which its cookies hold: time zone, theme, refresh and keys."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, tzinfo
from functools import cache
from typing import Literal, NamedTuple, cast, get_args
from zoneinfo import ZoneInfo, available_timezones

Theme = Literal["auto", "light", "dark"]

ZONE, THEME, LIVE, KEYS = "progressor_zone", "progressor_theme", "progressor_live", "progressor_keys"
UTC_NAME = "UTC"


class BrowserPreferences(NamedTuple):
    """The preferences of one browser."""

    zone_name: str = UTC_NAME
    theme: Theme = "auto"
    is_live: bool = True
    has_keys: bool = True

    @property
    def zone(self) -> tzinfo:
        """Return the zone in which all times are shown."""
        return UTC if self.zone_name == UTC_NAME else ZoneInfo(self.zone_name)

    @classmethod
    def of(cls, cookies: Mapping[str, str]) -> BrowserPreferences:
        """Return the preferences that these cookies hold; what they do not hold is as by default."""
        zone, theme = cookies.get(ZONE, UTC_NAME), cookies.get(THEME)
        return cls(
            zone if zone in zones() else UTC_NAME,
            cast("Theme", theme) if theme in get_args(Theme) else "auto",
            cookies.get(LIVE) != "off",
            cookies.get(KEYS) != "off",
        )


@cache
def zones() -> frozenset[str]:
    """Return the names of all zones."""
    return frozenset(available_timezones())
