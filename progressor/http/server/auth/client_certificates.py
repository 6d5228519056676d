"""Client certificates that a proxy has verified: it names their subject in a header.

Rule: the header counts from the addresses of that proxy alone; from any other address it is ignored.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from starlette.requests import Request

from progressor.errors import InvalidRequest
from progressor.http.server.auth.principals import Principal, unknown
from progressor.rights import Rights

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Certificates:
    """The header that names a certificate's subject, the proxies whose header counts, and all rights."""

    header: str
    proxies: tuple[Network, ...]
    subjects: Mapping[str, Rights]

    def caller(self, request: Request) -> Principal | None:
        """Return the caller whose certificate the proxy has verified; None without one, or from elsewhere.

        Raise Refusal if its subject is not known.
        """
        said = request.headers.getlist(self.header)
        if not any(said) or not self._trusts(peer_of(request)):
            return None
        rights = self.subjects.get(said[0]) if len(said) == 1 else None
        if rights is None:
            raise unknown("the subject of your certificate is not known here")
        return Principal(f"certificate {said[0]}", rights)

    def _trusts(self, address: str) -> bool:
        try:
            host = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(host in network for network in self.proxies)


def peer_of(request: Request) -> str:
    """Return the address of the other end of the connection; "a socket" where it has none."""
    if request.client is None:
        return "a socket"
    # A socket of both kinds shows an IPv4 address as one of IPv6.
    host = request.client.host
    return host.removeprefix("::ffff:") if "." in host else host


def networks(field: str, texts: Iterable[str]) -> tuple[Network, ...]:
    """Return addresses and networks (`10.0.0.7`, `10.1.0.0/16`); raise InvalidRequest for other texts."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError:
            raise InvalidRequest(
                f"{field} must be IP addresses or networks (10.0.0.7, 10.1.0.0/16), not {text!r:.80}",
                field=field,
            ) from None
    if not found:
        raise InvalidRequest(f"{field} must name at least one address", field=field)
    return tuple(found)
