"""The schemes by their names in a profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.operations.ingest.signatures.hmac_of_body import GitHub, HmacOfBody
from app.operations.ingest.signatures.signature import Signature
from app.operations.ingest.signatures.standard_webhooks import StandardWebhooks
from app.operations.ingest.signatures.timed import Slack, Stripe
from schemas.ingest import PutIngestSignature, Scheme

_SCHEMES: Final[Mapping[Scheme, type[GitHub | HmacOfBody | Slack | StandardWebhooks | Stripe]]] = {
    "github": GitHub,
    "hmac": HmacOfBody,
    "slack": Slack,
    "standard-webhooks": StandardWebhooks,
    "stripe": Stripe,
}


def signature_of(document: PutIngestSignature) -> Signature:
    """Return the signature that a document with its secrets describes."""
    return _SCHEMES[document.scheme](document)
