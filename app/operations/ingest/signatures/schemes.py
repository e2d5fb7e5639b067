"""The schemes by their names in a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from app.operations.ingest.signatures.hmac_of_body import GitHub, HmacOfBody
from app.operations.ingest.signatures.public_keys import Discord, SendGrid
from app.operations.ingest.signatures.signature import Signature
from app.operations.ingest.signatures.standard_webhooks import StandardWebhooks
from app.operations.ingest.signatures.timed import Slack, Stripe, Zoom
from app.operations.ingest.signatures.token import GitLab, TokenHeader
from schemas.ingest import PutIngestSignature, Scheme

_SCHEMES: Final[Mapping[Scheme, Callable[[PutIngestSignature], Signature]]] = {
    "discord": Discord,
    "github": GitHub,
    "gitlab": GitLab,
    "hmac": HmacOfBody,
    "sendgrid": SendGrid,
    "slack": Slack,
    "standard-webhooks": StandardWebhooks,
    "stripe": Stripe,
    "token-header": TokenHeader,
    "zoom": Zoom,
}


def signature_of(document: PutIngestSignature) -> Signature:
    """Return the signature that a document with its secrets describes.

    Raises ValueError for a public key that is none.
    """
    return _SCHEMES[document.scheme](document)
