"""Schemes that sign the body and nothing else: `github`, and `hmac` for everything similar.

The signature has no timestamp, so a request can be repeated; the delivery's id is not signed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from app.operations.ingest.signatures.signature import Claim, HmacSignature
from schemas.ingest import PutIngestSignature, Scheme


class HmacOfBody(HmacSignature):
    """Any header with an HMAC of the body, in hexadecimal digits or base64."""

    scheme: ClassVar[Scheme] = "hmac"

    def __init__(self, document: PutIngestSignature) -> None:
        assert document.header is not None, "validated with the document"
        self.name = document.header
        self._prefix = (document.prefix or "").encode()
        algorithm = document.algorithm or "sha256"
        encoding = document.encoding or "hex"
        shown = "base64" if encoding == "base64" else "hexadecimal digits"
        self.form = f"{document.prefix or ''}<{algorithm} HMAC of the body in {shown}>"
        super().__init__(document, algorithm=algorithm, encoding=encoding)

    def _claim(self, head: Mapping[bytes, bytes], now_ms: int) -> Claim:  # noqa: ARG002  # no time
        value = self._value(head, self.name)
        if not value.startswith(self._prefix):
            raise self._malformed(self.name, self.form)
        return Claim(b"", [value[len(self._prefix) :]])


class GitHub(HmacOfBody):
    """GitHub, and everything that imitates its webhooks: `X-Hub-Signature-256: sha256=<hex>`."""

    scheme = "github"
    delivery_header = b"x-github-delivery"
    headers = (b"x-github-event",)
    advice = (
        "set the secret in the webhook's settings (X-Hub-Signature, which is SHA-1, is not enough)"
    )

    def __init__(self, document: PutIngestSignature) -> None:
        header = "X-Hub-Signature-256"
        super().__init__(document.model_copy(update={"header": header, "prefix": "sha256="}))
