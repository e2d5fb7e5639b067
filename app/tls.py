"""TLS: the service's certificate, and clients who show one of their own."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, cast

from cryptography import x509

from app.auth.security import PEER_KEY
from app.protocol import Protocol
from app.settings import Settings
from engine.errors import InvalidConfig


class CertifiedProtocol(Protocol):
    """A connection whose client may have shown a certificate that the client CA signed.

    uvicorn tells nothing of it, so it is taken from the connection, once. The whole subject counts.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's
        super().connection_made(transport)
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        self._client_name: str | None = None
        if certificate is not None:
            subject = x509.load_der_x509_certificate(certificate).subject
            self._client_name = subject.rfc4514_string()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._client_name is not None:
            cast("dict[str, Any]", self.scope)[PEER_KEY] = self._client_name


def tls_options(settings: Settings) -> dict[str, Any]:
    """Return uvicorn's options for TLS, none without a certificate.

    Raises InvalidConfig for half a configuration, and for files that cannot be used.
    """
    if settings.tls_cert is None:
        if settings.tls_key is not None or settings.tls_client_ca is not None:
            raise InvalidConfig("tls_key and tls_client_ca need tls_cert beside them")
        return {}
    if settings.tls_key is None:
        raise InvalidConfig("tls_cert needs tls_key beside it")
    options: dict[str, Any] = {
        "ssl_certfile": settings.tls_cert,
        "ssl_keyfile": settings.tls_key,
    }
    if settings.tls_client_ca is not None:
        options |= {"ssl_ca_certs": settings.tls_client_ca, "ssl_cert_reqs": ssl.CERT_OPTIONAL}
    _ensure_usable(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    return options


def _ensure_usable(cert: Path, key: Path, client_ca: Path | None) -> None:
    """Try the files, so that what is wrong with them is one sentence and not a stack."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=_refuse_password)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"TLS cannot be set up with these files: {error}") from error


def _refuse_password() -> str:
    raise ValueError("the private key is encrypted")
