"""Preferences of a browser, which its cookies hold: time zone, theme, refresh, keys, and muted failures."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, tzinfo
from functools import cache
from typing import Literal, NamedTuple, cast, get_args
from zoneinfo import ZoneInfo, available_timezones

from progressor.client.failure_groups import FailureGroup

Theme = Literal["auto", "light", "dark"]

ZONE, THEME, LIVE, KEYS = "progressor_zone", "progressor_theme", "progressor_live", "progressor_keys"
MUTED = "progressor_muted"
UTC_NAME = "UTC"
# A cookie has 4 KiB; the newest are kept.
MOST_MUTED = 50
_MARK = re.compile("[0-9a-f]{16}")


class BrowserPreferences(NamedTuple):
    """The preferences of one browser."""

    zone_name: str = UTC_NAME
    theme: Theme = "auto"
    is_live: bool = True
    has_keys: bool = True
    muted: tuple[str, ...] = ()

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
            tuple(filter(_MARK.fullmatch, cookies.get(MUTED, "").split(".")))[-MOST_MUTED:],
        )

    def unmuted(self, groups: Iterable[FailureGroup]) -> list[FailureGroup]:
        """Return those of the groups that this browser has not muted."""
        return [each for each in groups if mark_of(each) not in self.muted]

    def muting(self, form: Mapping[str, str]) -> str:
        """Return the cookie of muted failures after a form that mutes one, shows one, or shows all."""
        mute, shown = form.get("mute", ""), form.get("unmute", "")
        left = [] if shown == "all" else [each for each in self.muted if each not in (mute, shown)]
        return ".".join([*left, mute][-MOST_MUTED:] if _MARK.fullmatch(mute) else left)


def mark_of(group: FailureGroup) -> str:
    """Return the mark by which a browser keeps that a group is muted; it tells nothing of the group."""
    said = "\0".join((group.namespace, group.status, group.handler, group.message))
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:16]


@cache
def zones() -> frozenset[str]:
    """Return the names of all zones."""
    return frozenset(available_timezones())
