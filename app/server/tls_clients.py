"""TLS client certificates. Imported only if clients are asked for them."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final, cast

from cryptography import x509

from app.security.authority import PEER_KEY
from app.wire.protocol import Protocol

MAX_SESSIONS: Final = 20_480
"""Sessions remembered, as many as OpenSSL keeps; beyond it the oldest is removed."""


class Sessions:
    """TLS 1.2 sessions by id, each with the context that verified its certificate.

    Python cannot turn off OpenSSL's session cache. It belongs to the listening context, so it
    outlives a withdrawn client CA: a client that resumes a session presents its old certificate,
    unverified.
    """

    def __init__(self) -> None:
        self._verified_by: dict[bytes, ssl.SSLContext] = {}

    def is_verified(self, connection: ssl.SSLObject) -> bool:
        """Whether the current context has verified the client's certificate."""
        session = connection.session
        assert session is not None, "the handshake is over"
        if connection.session_reused:
            return self._verified_by.get(session.id) is connection.context
        if connection.version() != "TLSv1.3":  # TLS 1.3 resumes with tickets only
            if len(self._verified_by) >= MAX_SESSIONS:
                del self._verified_by[next(iter(self._verified_by))]
            self._verified_by[session.id] = connection.context
        return True


class CertifiedProtocol(Protocol):
    """A connection whose client may have a certificate that the client CA signed.

    uvicorn does not expose it, so it is read from the connection, once. Principals are whole
    subjects.
    """

    def __init__(self, *, sessions: Sessions, **options: Any) -> None:  # noqa: ANN401  # uvicorn's
        super().__init__(**options)
        self._sessions = sessions
        self._client_name: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's
        super().connection_made(transport)
        connection: ssl.SSLObject = transport.get_extra_info("ssl_object")
        certificate = connection.getpeercert(binary_form=True)
        if certificate is None:
            return
        if not self._sessions.is_verified(connection):
            transport.abort()  # the client's next handshake is a full one
            return
        subject = x509.load_der_x509_certificate(certificate).subject
        self._client_name = subject.rfc4514_string()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._client_name is not None:
            cast("dict[str, Any]", self.scope)[PEER_KEY] = self._client_name
