"""Where subscriptions may send to.

A URL that a client sets must not reach what only this machine can: loopback, its network, the
metadata service of a cloud. Names are resolved here, each address is judged, and exactly that
address is connected to: a name that means something else a moment later changes nothing. Redirects
are not followed, and no proxy of the environment is used.
"""

from __future__ import annotations

import asyncio
import fnmatch
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from app.errors import invalid_member

RESOLVE_S: Final = 10.0
"""Longest time that a name may take."""

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")


class Refused(Exception):
    """The target may not be sent to; the message says why."""


class Hosts:
    """Hosts that may be sent to although they are private, or by plain http."""

    def __init__(self, listed: Iterable[str]) -> None:
        """Each is a name, a pattern of names with `*`, or a network such as 10.0.0.0/8."""
        self._names: list[str] = []
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for one in listed:
            try:
                self._networks.append(ipaddress.ip_network(one, strict=False))
            except ValueError:
                self._names.append(one.lower())

    def has_name(self, host: str) -> bool:
        host = host.lower().rstrip(".")
        return any(fnmatch.fnmatchcase(host, pattern) for pattern in self._names)

    def has_address(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)

    def may_be_reached(self, host: str, address: str) -> bool:
        """Whether an address of a host may be connected to."""
        parsed = ipaddress.ip_address(address.partition("%")[0])
        return self.has_name(host) or self.has_address(parsed) or is_public(parsed)


def is_public(address: _Address) -> bool:
    """Whether an address is one of the internet, and so are those that it stands for."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_site_local:
            return False
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64 or address in _COMPATIBLE:
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
        if any(one is not None and not is_public(one) for one in inner):
            return False
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )


async def resolved(hosts: Hosts, host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host that may be connected to; raises Refused if there is none."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # a timeout is an OSError
        raise Refused(f"{host} cannot be resolved: {error}") from None
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    allowed = [one for one in addresses if hosts.may_be_reached(host, one)]
    if not allowed:
        raise Refused(
            f"{host} is {', '.join(addresses)}, which is not public: subscription_hosts lists the "
            "hosts that may be sent to all the same"
        )
    return allowed


async def ensure_target(hosts: Hosts, url: str) -> None:
    """Raise InvalidBody unless a URL may be sent to now; each connection is judged again."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https" and not hosts.has_name(host) and not _is_listed(hosts, host):
        raise invalid_member(
            "url", "only https is sent to, unless subscription_hosts lists the host"
        )
    try:
        await resolved(hosts, host, parts.port or (443 if parts.scheme == "https" else 80))
    except Refused as refused:
        raise invalid_member("url", str(refused)) from None


def _is_listed(hosts: Hosts, host: str) -> bool:
    try:
        return hosts.has_address(ipaddress.ip_address(host))
    except ValueError:
        return False
