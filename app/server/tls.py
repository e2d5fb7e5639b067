"""TLS: the service's certificate and its renewal."""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import uvicorn

from app.settings import Settings
from engine.clock import Clock
from engine.errors import InvalidConfig
from engine.fs.port import FileSystem

_LOG = logging.getLogger(__name__)

Versions: TypeAlias = tuple[str, ...]
"""The version of each file, or why it cannot be opened."""


class Certificates:
    """The current certificate, read again when one of its files changes.

    Open connections keep theirs. While the files cannot be used, for example between the two steps
    of a renewal, the current certificate stays for `tls_read_timeout_ms`. After that every
    handshake fails until the files can be used, because a client CA may have been withdrawn in
    them.
    """

    def __init__(self, settings: Settings, fs: FileSystem, clock: Clock) -> None:
        self._fs = fs
        self._clock = clock
        self._refreshing = threading.Lock()
        self._read_timeout_ms = settings.tls_read_timeout_ms
        self._unusable_since_ms: int | None = None
        self._is_closed = False
        """Whether the files have not been usable for too long."""
        self._interval_s = settings.tls_check_interval_ms / 1000
        files = (settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        self._files = tuple(path for path in files if path is not None)
        self._chain = settings.tls_cert
        self._asks_clients = settings.tls_client_ca is not None
        self.ends_s = math.nan
        """When the first certificate of the current chain ends, Unix time; NaN if it is not known.
        Written where the files are read."""
        self._make: Callable[[], ssl.SSLContext]
        self._current: ssl.SSLContext
        self._versions: Versions

    def context(self, _: uvicorn.Config, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """Return uvicorn's listening context; every connection switches to the current one."""
        self._make = make
        self._versions = self._look()
        listening = self._current = self._made()
        self.ends_s = self._end()
        listening.sni_callback = self._hand_on
        return listening

    def refresh(self) -> None:
        """Use the files if they have changed; on any thread."""
        with self._refreshing:
            self._refresh()

    def _refresh(self) -> None:
        versions = self._look()
        is_new = versions != self._versions
        if not is_new and self._unusable_since_ms is None:
            return
        self._versions = versions
        try:
            self._current = self._made()
        except (OSError, ValueError) as error:
            if is_new:
                _LOG.error("the TLS files have changed and cannot be used: %s", error)
            self._close_in_time()
        else:
            self.ends_s = self._end()
            self._unusable_since_ms = None
            self._is_closed = False
            _LOG.info("the TLS files have changed and were loaded")

    def _close_in_time(self) -> None:
        """Refuse handshakes once the files have not been usable for `tls_read_timeout_ms`."""
        now_ms = self._clock.monotonic_ms()
        if self._unusable_since_ms is None:
            self._unusable_since_ms = now_ms
        is_late = now_ms - self._unusable_since_ms >= self._read_timeout_ms
        if is_late and not self._is_closed:
            self._is_closed = True
            _LOG.error("no TLS connection is accepted until the TLS files can be used")

    async def watch(self) -> None:
        """Check for changes until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await asyncio.to_thread(self.refresh)

    def _made(self) -> ssl.SSLContext:
        """Return a context with the files' current content.

        A session ticket would admit its client without verifying the certificate again, so none is
        issued if clients are asked for certificates. `app.server.tls_clients` handles sessions
        without tickets.
        """
        context = self._make()
        if self._asks_clients:
            context.options |= ssl.OP_NO_TICKET  # up to TLS 1.2
            context.num_tickets = 0  # TLS 1.3
        return context

    def _end(self) -> float:
        from cryptography import x509  # noqa: PLC0415  # slow to import, and only TLS needs it

        assert self._chain is not None, "uvicorn has read it"
        try:
            chain = x509.load_pem_x509_certificates(self._chain.read_bytes())
        except (OSError, ValueError):  # replaced meanwhile: the next look reads it
            return math.nan
        return min(one.not_valid_after_utc.timestamp() for one in chain)

    def _hand_on(
        self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> int | None:
        if self._is_closed:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None

    def _look(self) -> Versions:
        return tuple(map(self._version_of, self._files))

    def _version_of(self, path: Path) -> str:
        try:
            with self._fs.open(path, read_only=True, follow_links=True) as file:
                return file.version()
        except OSError as error:
            return str(error)


def tls_options(settings: Settings) -> dict[str, Any]:
    """Return uvicorn's options for TLS, or none without a certificate.

    Raises InvalidConfig for an incomplete configuration and for files that cannot be used.
    """
    if settings.tls_cert is None:
        if settings.tls_key is not None or settings.tls_client_ca is not None:
            raise InvalidConfig("tls_key and tls_client_ca need tls_cert")
        return {}
    if settings.tls_key is None:
        raise InvalidConfig("tls_cert needs tls_key")
    options: dict[str, Any] = {
        "ssl_certfile": settings.tls_cert,
        "ssl_keyfile": settings.tls_key,
    }
    if settings.tls_client_ca is not None:
        options |= {"ssl_ca_certs": settings.tls_client_ca, "ssl_cert_reqs": ssl.CERT_OPTIONAL}
    _ensure_usable(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    return options


def _ensure_usable(cert: Path, key: Path, client_ca: Path | None) -> None:
    """Try the files, so that an error is one sentence instead of a stack trace."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=_refuse_password)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"TLS cannot be set up with these files: {error}") from error


def _refuse_password() -> str:
    raise ValueError("the private key is encrypted")
