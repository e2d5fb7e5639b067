"""The scheme of Standard Webhooks 1.0: HMAC-SHA256 (`v1`) and Ed25519 (`v1a`).

The package `standardwebhooks` verifies HMAC with one secret, a tolerance of five minutes, the
system's clock and bodies in UTF-8, and accepts several spellings of one timestamp. Here there are
several secrets, Ed25519, a tolerance and a clock of our own, and any body. Tests use it as a
reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from app.operations.ingest.signatures.signature import (
    MAX_SIGNATURES,
    Claim,
    HmacSignature,
    canonical_base64,
)
from engine.types import Buffer
from schemas.ingest import PutIngestSignature, standard_webhooks_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_ID: Final = "webhook-id"
_TIME: Final = "webhook-timestamp"
_HMAC_VERSION: Final = b"v1,"
_ED25519_VERSION: Final = b"v1a,"


class StandardWebhooks(HmacSignature):
    """`v1,<base64>` or `v1a,<base64>`, separated by spaces, of `<id>.<time>.<body>`."""

    scheme = "standard-webhooks"
    delivery_header = _ID.encode()
    headers = (_TIME.encode(), b"svix-timestamp")
    name = "webhook-signature"
    form = "v1,<base64> or v1a,<base64>"

    def __init__(self, document: PutIngestSignature) -> None:
        keys = [standard_webhooks_key(secret) for secret in document.secrets or ()]
        symmetric = [key for is_public_key, key in keys if not is_public_key]
        super().__init__(document, symmetric, encoding="base64")
        self._public_keys = [ed25519_key(key) for is_public_key, key in keys if is_public_key]

    def _value(self, head: Mapping[bytes, bytes], name: str) -> bytes:
        """Return a header by its name in the specification, or by Svix's own, its default."""
        svix = name.replace("webhook-", "svix-", 1)
        is_svix = name.encode() not in head and svix.encode() in head
        return super()._value(head, svix if is_svix else name)

    def _claim(self, head: Mapping[bytes, bytes], now_ms: int) -> Claim:
        versioned = self._value(head, self.name).split(b" ")
        webhook_id = self._value(head, _ID)
        seconds = self._value(head, _TIME)
        if len(versioned) > MAX_SIGNATURES:
            raise self._malformed(self.name, f"at most {MAX_SIGNATURES} signatures")
        if not webhook_id or b"." in webhook_id:
            # The specification demands it: otherwise a body could begin with the signed time.
            raise self._malformed(_ID, "an id without a full stop")
        claimed = sum(one.startswith(_ED25519_VERSION) for one in versioned)
        if claimed * len(self._public_keys) > MAX_SIGNATURES:  # each hashes the body again
            raise self._malformed(
                self.name, f"at most {MAX_SIGNATURES // len(self._public_keys)} v1a signatures"
            )
        if not any(one.startswith((_HMAC_VERSION, _ED25519_VERSION)) for one in versioned):
            raise self._malformed(self.name, self.form)
        self._ensure_timely(_TIME, seconds, now_ms)
        return Claim(b"%b.%b." % (webhook_id, seconds), versioned)

    def _is_signed(self, claim: Claim, body: Buffer) -> bool:
        before_body, versioned = claim
        is_signed = False
        if self._keyed:
            macs = [one[3:] for one in versioned if one.startswith(_HMAC_VERSION)]
            is_signed = super()._is_signed(Claim(before_body, macs), body)
        if self._public_keys:
            signatures = [one[4:] for one in versioned if one.startswith(_ED25519_VERSION)]
            signed = b"".join((before_body, body)) if signatures else b""
            for text in signatures:
                signature = canonical_base64(text)
                for key in self._public_keys:
                    is_signed |= _is_of_key(key, signature, signed)
        return is_signed


def ed25519_key(key: bytes) -> Ed25519PublicKey:
    """Return a public key by its 32 bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415  # slow to load
        Ed25519PublicKey,
    )

    return Ed25519PublicKey.from_public_bytes(key)


def _is_of_key(key: Ed25519PublicKey, signature: bytes, signed: bytes) -> bool:
    from cryptography.exceptions import (  # noqa: PLC0415  # loaded with the key
        InvalidSignature as WrongSignature,
    )

    try:
        key.verify(signature, signed)
    except WrongSignature:
        return False
    return True
