"""What all schemes have in common: reading the headers, comparing, and explaining a refusal.

A refusal is read by a person who sets up a webhook. It names the header and the scheme, and how far
the clocks are apart; never a secret, the expected signature, or the value of a header, which may be
a secret in the wrong place.
"""

from __future__ import annotations

import hmac
from abc import ABC, abstractmethod
from binascii import Error, a2b_base64, b2a_base64, hexlify
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import ClassVar, Final, NamedTuple

from app.errors import InvalidSignature, SignatureFault
from app.security.presented import CHALLENGE
from engine.types import Buffer
from schemas.ingest import PutIngestSignature, Scheme, SignatureEncoding

MAX_SIGNATURES: Final = 8
"""Signatures that are compared in one request; a sender sends one for each of its active keys."""

_MAX_TIMESTAMP_DIGITS: Final = 12
_ALL_HEADERS: Final[Mapping[bytes, str]] = {
    b"x-hub-signature-256": "github",
    b"stripe-signature": "stripe",
    b"x-slack-signature": "slack",
    b"webhook-signature": "standard-webhooks",
    b"svix-signature": "standard-webhooks",
    b"x-gitlab-token": "gitlab",
    b"x-zm-signature": "zoom",
    b"x-signature-ed25519": "discord",
    b"x-twilio-email-event-webhook-signature": "sendgrid",
}
"""The scheme of each header, for a request that was signed with another one."""


class Claim(NamedTuple):
    """The headers of a request, in order, before the body is compared with them."""

    before_body: bytes
    """What the sender signed before the body."""
    signatures: list[bytes]
    """As sent, without prefix or version."""


class Signature(ABC):
    """The signature that the requests to a topic need; belongs to a profile, and never changes."""

    scheme: ClassVar[Scheme]
    delivery_header: ClassVar[bytes | None] = None
    """The request header with the delivery's id, in lower case."""
    delivery_pointer: ClassVar[str | None] = None
    """The JSON Pointer to the delivery's id in the body."""
    headers: ClassVar[tuple[bytes, ...]] = ()
    """Request headers that become record headers, in lower case."""
    advice: ClassVar[str] = ""
    """What to do if the request is not signed."""

    name: str
    """The request header that has the signature, as the sender's documentation spells it."""
    form: str
    """What that header looks like."""

    def __init__(self, document: PutIngestSignature) -> None:
        assert document.secrets, "a stored profile has the secrets of its signature"
        self.header = self.name.lower().encode()
        self.secrets_count = len(document.secrets)
        self.tolerance_ms = document.tolerance_ms

    def check(self, head: Mapping[bytes, bytes], now_ms: int) -> None:
        """Raise InvalidSignature if the headers alone show that the request will be refused."""
        self._claim(head, now_ms)

    def verify(self, head: Mapping[bytes, bytes], body: Buffer, now_ms: int) -> None:
        """Raise InvalidSignature unless a secret of the profile signed the body as it was sent."""
        if not self._is_signed(self._claim(head, now_ms), body):
            secrets = "the profile's secret"
            if self.secrets_count > 1:
                secrets = f"any of the profile's {self.secrets_count} secrets"
            raise self._refusal(
                "mismatch",
                self.name,
                f"the signature in {self.name} is not one of this body with {secrets} (scheme "
                f"{self.scheme}): compare the secret with the sender's, and make sure that nothing "
                "between the sender and this service changes the body",
            )

    @abstractmethod
    def _claim(self, head: Mapping[bytes, bytes], now_ms: int) -> Claim:
        """Return what the headers claim; raises InvalidSignature."""

    @abstractmethod
    def _is_signed(self, claim: Claim, body: Buffer) -> bool:
        """Whether one of the signatures is right; compares all of them with all secrets."""

    def _value(self, head: Mapping[bytes, bytes], name: str) -> bytes:
        value = head.get(name.lower().encode())
        if value is None:
            raise self._missing(head, name)
        return value

    def _missing(self, head: Mapping[bytes, bytes], name: str) -> InvalidSignature:
        detail = f"the request has no {name}: this topic expects the scheme {self.scheme}"
        others = [other for other in _ALL_HEADERS if other in head and other != self.header]
        if others:
            other = others[0]
            detail += f", and {other.decode()} is the header of the scheme {_ALL_HEADERS[other]}"
        elif self.advice:
            detail += f"; {self.advice}"
        return self._refusal("missing", name, detail)

    def _malformed(self, name: str, form: str) -> InvalidSignature:
        return self._refusal(
            "malformed", name, f"{name} is not {form}, as the scheme {self.scheme} expects"
        )

    def _ensure_timely(self, name: str, seconds: bytes, now_ms: int) -> None:
        """Raise InvalidSignature unless the signed time is within the tolerance."""
        if not seconds.isdigit() or len(seconds) > _MAX_TIMESTAMP_DIGITS:
            raise self._malformed(name, "a time in seconds since 1970")
        skew_ms = int(seconds) * 1000 - now_ms
        if abs(skew_ms) > self.tolerance_ms:
            side = "ahead of" if skew_ms > 0 else "behind"
            raise self._refusal(
                "clock",
                name,
                f"the time in {name} is {abs(skew_ms) / 1000:.0f} s {side} this service's clock "
                f"({_shown(now_ms)}), and the profile allows {self.tolerance_ms / 1000:g} s: "
                "correct the clock that is wrong, unless an old request was sent again",
            )

    @staticmethod
    def _refusal(reason: SignatureFault, name: str, detail: str) -> InvalidSignature:
        headers = {"www-authenticate": CHALLENGE}
        refusal = InvalidSignature(detail, header=name, headers=headers)
        refusal.reason = reason
        return refusal


class HmacSignature(Signature):
    """An HMAC of something before the body, and the body as it was sent."""

    def __init__(
        self,
        document: PutIngestSignature,
        keys: Iterable[bytes] | None = None,
        *,
        algorithm: str = "sha256",
        encoding: SignatureEncoding = "hex",
    ) -> None:
        """Without `keys`, the secrets are used as text."""
        super().__init__(document)
        self.secrets = tuple(secret.encode() for secret in document.secrets or ())
        if keys is None:
            keys = self.secrets
        # The key schedule is computed once; a copy of it costs less than half of a new one.
        self._keyed = tuple(hmac.new(key, digestmod=algorithm) for key in keys)
        self._encode = _ENCODERS[encoding]

    def _is_signed(self, claim: Claim, body: Buffer) -> bool:
        is_signed = False
        for keyed in self._keyed:
            mac = keyed.copy()
            mac.update(claim.before_body)
            mac.update(body)
            expected = self._encode(mac.digest())
            for signature in claim.signatures:
                is_signed |= hmac.compare_digest(expected, signature)
        return is_signed


def is_one_of(value: bytes, secrets: Iterable[bytes]) -> bool:
    """Whether a value is one of the secrets; compares it with all of them."""
    is_known = False
    for secret in secrets:
        is_known |= hmac.compare_digest(secret, value)
    return is_known


def canonical_base64(text: bytes) -> bytes:
    """Return the bytes that a text encodes; none if it is not the one encoding of them."""
    try:
        decoded = a2b_base64(text, strict_mode=True)
    except Error:
        return b""
    return decoded if b2a_base64(decoded, newline=False) == text else b""


def _base64(digest: bytes) -> bytes:
    return b2a_base64(digest, newline=False)


_ENCODERS: Final[Mapping[SignatureEncoding, Callable[[bytes], bytes]]] = {
    "hex": hexlify,
    "base64": _base64,
}


def _shown(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
