"""TLS: clients who show a certificate of their own. Loaded where they are asked for one."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from cryptography import x509

from app.auth.security import PEER_KEY
from app.protocol import Protocol


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
