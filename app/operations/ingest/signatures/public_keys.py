"""Schemes with a key pair: `discord` (Ed25519) and `sendgrid` (ECDSA on P-256).

The secret of the profile is the sender's public key, as its settings show it.
"""

from __future__ import annotations

from abc import abstractmethod
from base64 import b64decode
from binascii import Error, hexlify, unhexlify
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from app.operations.ingest.signatures.signature import Claim, Signature, canonical_base64
from app.operations.ingest.signatures.standard_webhooks import ed25519_key
from engine.types import Buffer
from schemas.ingest import PutIngestSignature, Scheme

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    Key: TypeAlias = Ed25519PublicKey | EllipticCurvePublicKey


class _PublicKeySignature(Signature):
    """A signature of a time in seconds and the body."""

    time_name: ClassVar[str]

    def __init__(self, document: PutIngestSignature) -> None:
        """Raise ValueError for a key that is none; the document has checked its form."""
        super().__init__(document)
        self._keys = tuple(self._key(secret) for secret in document.secrets or ())

    def _claim(self, head: Mapping[bytes, bytes], now_ms: int) -> Claim:
        value = self._value(head, self.name)
        seconds = self._value(head, self.time_name)
        signature = self._decoded(value)
        if signature is None:
            raise self._malformed(self.name, self.form)
        self._ensure_timely(self.time_name, seconds, now_ms)
        return Claim(seconds, [signature])

    def _is_signed(self, claim: Claim, body: Buffer) -> bool:
        from cryptography.exceptions import (  # noqa: PLC0415  # loaded with the key
            InvalidSignature as WrongSignature,
        )

        signed = b"".join((claim.before_body, body))
        for key in self._keys:
            try:
                self._verify(key, claim.signatures[0], signed)
            except WrongSignature:
                continue
            return True
        return False

    @staticmethod
    @abstractmethod
    def _key(secret: str) -> Key:
        """Return the key that a secret is."""

    @staticmethod
    @abstractmethod
    def _decoded(value: bytes) -> bytes | None:
        """Return the signature in a header; None if there is none."""

    @staticmethod
    @abstractmethod
    def _verify(key: Key, signature: bytes, signed: bytes) -> None:
        """Raise cryptography's InvalidSignature unless the key has signed the bytes."""


class Discord(_PublicKeySignature):
    """Discord's interactions and events: Ed25519, in hexadecimal digits, of time and body."""

    scheme: ClassVar[Scheme] = "discord"
    delivery_pointer = "/id"
    name = "X-Signature-Ed25519"
    time_name = "X-Signature-Timestamp"
    form = "128 hexadecimal digits"
    advice = "the secret is the public key of the application's General Information"

    @staticmethod
    def _key(secret: str) -> Key:
        return ed25519_key(unhexlify(secret))

    @staticmethod
    def _decoded(value: bytes) -> bytes | None:
        try:
            signature = unhexlify(value)
        except Error:
            return None
        return signature if hexlify(signature) == value else None

    @staticmethod
    def _verify(key: Key, signature: bytes, signed: bytes) -> None:
        key.verify(signature, signed)  # type: ignore[call-arg] # made by `_key`


class SendGrid(_PublicKeySignature):
    """Twilio SendGrid's event webhook: ECDSA with SHA-256, base64 of DER, of time and body."""

    scheme: ClassVar[Scheme] = "sendgrid"
    name = "X-Twilio-Email-Event-Webhook-Signature"
    time_name = "X-Twilio-Email-Event-Webhook-Timestamp"
    form = "base64"
    advice = "the secret is the verification key of the event webhook's security features"

    @staticmethod
    def _key(secret: str) -> Key:
        from cryptography.hazmat.primitives.asymmetric.ec import (  # noqa: PLC0415  # slow to load
            EllipticCurvePublicKey,
        )
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  # the same
            load_der_public_key,
        )

        key = load_der_public_key(b64decode(secret))
        assert isinstance(key, EllipticCurvePublicKey), "the document has checked its form"
        return key

    @staticmethod
    def _decoded(value: bytes) -> bytes | None:
        return canonical_base64(value) or None

    @staticmethod
    def _verify(key: Key, signature: bytes, signed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA  # noqa: PLC0415  # as above
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415  # the same

        key.verify(signature, signed, ECDSA(SHA256()))  # type: ignore[call-arg] # made by `_key`
