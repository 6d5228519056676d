"""Addresses that a name stands for, and which of them are of the public internet.

Rule: what is checked is what is connected to. A name is resolved once, and the connection is opened to an
address that was found then: whoever owns the name cannot give another one in between.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# Beside what ipaddress knows as private, which differs between releases of Python: protocol assignments
# (one of them is the metadata service of a cloud), the relay of 6to4, and the host agent of another cloud.
_NOT_PUBLIC_4 = [IPv4Network(each) for each in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")]
# All that is assigned to hosts, and what within it is for documentation alone.
_GLOBAL_6, _DOCUMENTATION_6 = IPv6Network("2000::/3"), IPv6Network("3fff::/20")
# IPv4 addresses within those of IPv6: translated ones (NAT64).
_TRANSLATED = IPv6Network("64:ff9b::/96")


def is_public(text: str) -> bool:
    """Return whether an address is of the public internet.

    None is that is private, of the loopback, of the link, multicast or reserved. An address of IPv6 that
    stands for one of IPv4 is what that one is.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        within = _within(address)
        if within is None:
            return _is_public_6(address)
        address = within
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not any(address in network for network in _NOT_PUBLIC_4)
    )


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses that a name stands for now; raise OSError if there are none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError("no name of a host") from None
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def _is_public_6(address: IPv6Address) -> bool:
    return address.is_global and address in _GLOBAL_6 and address not in _DOCUMENTATION_6


def _within(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that one of IPv6 leads to; None for any other."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour
