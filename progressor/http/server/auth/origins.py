"""Hosts and origins: is a request meant for this API, and does it come from a page of another site?

Rule: a caller who shows nothing, or only what a browser shows by itself (a client certificate), is checked
for the origin of its request. A page of another site can send any request that needs no header of its own,
and a page whose host name leads here (DNS rebinding) can read the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from progressor.errors import InvalidRequest
from progressor.http.server.auth.jwks import is_loopback
from progressor.http.server.problems import Refusal
from progressor.http.wire.problems import FORBIDDEN

SETTING = "PROGRESSOR_HTTP_ALLOWED_HOSTS"
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
# Values of Sec-Fetch-Site, which browsers write and pages cannot: this API's own page, or no page.
_NO_OTHER_SITE = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The hosts under which an API may be asked, in small letters, beside this machine."""

    names: frozenset[str] = frozenset()

    def require_here(self, headers: Headers) -> None:
        """Raise Refusal if the host of a request is another one, or a page of another site sends it."""
        hosts = headers.getlist("Host")
        if len(hosts) > 1 or not all(self._knows(_host_of(f"//{each}")) for each in hosts):
            raise _refused(
                f"the header Host names none of this API's hosts: add it to {SETTING}, if it is one"
            )
        self.require_same_site(headers)

    def require_same_site(self, headers: Headers) -> None:
        """Raise Refusal if a page of another site sends a request."""
        origins, sites = headers.getlist("Origin"), headers.getlist("Sec-Fetch-Site")
        if not (origins or sites) or (sites and _NO_OTHER_SITE.issuperset(sites)):
            return
        own = {_host_of(f"//{each}") for each in headers.getlist("Host")}
        if not all(self._knows(host) or host in own for host in map(_host_of, origins)):
            raise _refused("the header Origin names another site")
        if sites and not origins:
            raise _refused("the header Sec-Fetch-Site says that a page of another site sends it")

    def _knows(self, host: str | None) -> bool:
        return host is not None and (host in self.names or is_loopback(host))


def allowed_hosts(field: str, names: Iterable[str]) -> AllowedHosts:
    """Return hosts by their names (`api`, `progressor.example`), in small letters.

    Raise InvalidRequest for a name with a scheme or a port.
    """
    listed = list(names)
    for name in listed:
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"{field} must be names of hosts, without schemes and ports (api, progressor.example), "
                f"not {name!r:.80}",
                field=field,
            )
    return AllowedHosts(frozenset(name.lower() for name in listed))


@lru_cache(maxsize=100)
def _host_of(url: str) -> str | None:
    """Return the host of an address, in small letters; None if it has none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _refused(why: str) -> Refusal:
    return Refusal(FORBIDDEN, f"only who asks from no other site is answered without a token, and {why}")
