"""Schemes that sign nothing and send a secret in a header: `gitlab`, and `token-header` for others.

Anyone who sees one request can send others, so use TLS for such a sender.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from app.operations.ingest.signatures.signature import Claim, Signature, is_one_of
from engine.types import Buffer
from schemas.ingest import PutIngestSignature, Scheme


class TokenHeader(Signature):
    """Any header whose value is one of the secrets."""

    scheme: ClassVar[Scheme] = "token-header"

    def __init__(self, document: PutIngestSignature) -> None:
        assert document.header is not None, "validated with the document"
        self.name = document.header
        self.form = "one of the profile's secrets"
        self._secrets = tuple(secret.encode() for secret in document.secrets or ())
        super().__init__(document)

    def _claim(self, head: Mapping[bytes, bytes], now_ms: int) -> Claim:  # noqa: ARG002  # no time
        return Claim(b"", [self._value(head, self.name)])

    def _is_signed(self, claim: Claim, body: Buffer) -> bool:  # noqa: ARG002  # it is not signed
        return is_one_of(claim.signatures[0], self._secrets)


class GitLab(TokenHeader):
    """GitLab's webhooks: the secret token in `X-Gitlab-Token`."""

    scheme = "gitlab"
    delivery_header = b"idempotency-key"
    headers = (b"x-gitlab-event", b"x-gitlab-instance")
    advice = "set the secret token in the webhook's settings"

    def __init__(self, document: PutIngestSignature) -> None:
        super().__init__(document.model_copy(update={"header": "X-Gitlab-Token"}))
