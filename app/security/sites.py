"""Checks of `Host` and `Origin`: host names of the service, and pages that may change something.

A browser sends requests to loopback for any page that asks it to. No page can forge `Host`,
`Origin` and `Sec-Fetch-Site`, so they distinguish the service's own pages from all others.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from app.errors import CrossSiteRequest, MisdirectedRequest
from app.settings import Settings
from engine.errors import InvalidConfig

if TYPE_CHECKING:
    from app.security.authority import Security

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing (RFC 9110, 9.2.1)."""

PROBES: Final = frozenset({"/livez", "/readyz"})
"""Paths that answer under any name: a kubelet probes the address of its pod."""

MAX_NAME_BYTES: Final = 260
"""A name of the DNS has 253 at most; a longer `Host` with its port is not remembered."""

MAX_NAMES: Final = 1_024
"""Cached values of `Host`; beyond it the cache is cleared."""

_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s\[\]:/@]+?))\.?(?::[0-9]{0,5})?")
_NAME: Final = re.compile(r"[^\s\[\]/@]+")
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  # compared with, not bound to


H = TypeVar("H", bound=Hashable)


class Sites:
    """Checks each request before a route sees it. Belongs to the event loop.

    Where credentials are configured, a page that reaches the service under a foreign name (DNS
    rebinding) has none, so names are checked only if `allowed_hosts` is set. Raises InvalidConfig
    for an allowed host that is not one.
    """

    def __init__(self, settings: Settings, security: Security) -> None:
        self._security = security
        self._origins = frozenset(settings.cors_origins)
        self._is_listed = bool(settings.allowed_hosts)
        self._names = {name.lower().removesuffix(".") for name in settings.allowed_hosts}
        self.accepted: set[bytes] = set()
        """Accepted values of `Host`, for hot requests, which skip the check. They stay accepted:
        once credentials are required, they are required for ever."""
        self._accepted_here: set[tuple[bytes, str]] = set()
        for name in settings.allowed_hosts:
            if _NAME.fullmatch(name) is None or (":" in name and not _is_address(name)):
                raise InvalidConfig(
                    f"allowed_hosts: {name!r} is not a host name (no scheme, no port)"
                )

    def listen_on(self, host: str) -> None:
        """Accept the name or address that the service listens on."""
        if host not in _WILDCARDS:
            self._names.add(host.lower())

    def accepts(self, host: bytes, local_address: str) -> bool:
        """Whether a request may have this `Host`; `local_address` is the server's address."""
        if host in self.accepted or (host, local_address) in self._accepted_here:
            return True
        if not host:
            return False  # of a URL without one, which none of this service's is
        if not self._is_checked:
            if self._security.asks and len(host) <= MAX_NAME_BYTES:
                _remember(self.accepted, host)
            return True
        match = _HOST.fullmatch(host.decode("latin-1").lower())
        if match is None:
            return False
        name = match[1] or match[2]
        if name in self._names or is_loopback(name):
            _remember(self.accepted, host)
            return True
        if name == local_address:
            _remember(self._accepted_here, (host, local_address))
            return True
        return False

    def ensure_admitted(
        self,
        method: str,
        scheme: str,
        headers: Sequence[tuple[bytes, bytes]],
        local_address: str,
    ) -> None:
        """Raise MisdirectedRequest for a foreign `Host`, CrossSiteRequest for another site's page.

        An HTTP/1.0 request may have no `Host`; browsers always send one.
        """
        fields = dict(headers)
        host = fields.get(b"host")
        if host is None:
            host = b""
        elif not self.accepts(host, local_address):
            raise MisdirectedRequest(
                f"{host.decode('latin-1')!r} is not a name of this service: add it to "
                "TIDELOG_ALLOWED_HOSTS if it is",
                host=host.decode("latin-1"),
            )
        if method not in SAFE_METHODS:
            self._ensure_own_page(scheme, fields, host)

    def _ensure_own_page(self, scheme: str, fields: dict[bytes, bytes], host: bytes) -> None:
        origin = fields.get(b"origin")
        site = fields.get(b"sec-fetch-site", b"none")
        if origin is not None:
            text = origin.decode("latin-1")
            if text in self._origins or "*" in self._origins:
                return
            if text.lower() != f"{scheme}://{host.decode('latin-1').lower()}":
                raise CrossSiteRequest(
                    f"pages of {text} are not allowed to change anything: to allow them, add the "
                    "origin to TIDELOG_CORS_ORIGINS",
                    origin=text,
                )
        if site not in {b"same-origin", b"none"}:
            raise CrossSiteRequest(
                "the request was sent by a page of another site (Sec-Fetch-Site: "
                f"{site.decode('latin-1')}), and such pages are not allowed to change anything",
            )

    @property
    def _is_checked(self) -> bool:
        return self._is_listed or self._security.is_open_to_all


def _remember(accepted: set[H], shown: H) -> None:
    if len(accepted) >= MAX_NAMES:
        accepted.clear()
    accepted.add(shown)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    if host == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
