"""Signatures of senders: the schemes by name, how each is verified, how a refusal is explained.

A refusal is read by a person who sets up a webhook. It names the header and the scheme, and how far
the clocks are apart; never a secret, the expected signature, or the value of a header, which may be
a secret in the wrong place.

`gitlab` and `token-header` sign nothing and send a secret in a header. Anyone who sees one request
can send others, so use TLS for such a sender. `github` and `hmac` sign the body alone: a request
can be repeated, and the delivery's id is not signed. `stripe`, `slack` and `zoom` sign a timestamp,
too. `discord` (Ed25519) and `sendgrid` (ECDSA on P-256) have a key pair, and the secret of the
profile is the sender's public key, as its settings show it.

Standard Webhooks 1.0 has HMAC-SHA256 (`v1`) and Ed25519 (`v1a`). The package `standardwebhooks`
verifies HMAC with one secret, a tolerance of five minutes, the system's clock and bodies in UTF-8,
and accepts several spellings of one timestamp. Here there are several secrets, Ed25519, a tolerance
and a clock of our own, and any body. Tests use it as a reference.
"""

from __future__ import annotations

import hmac
import re
from abc import ABC, abstractmethod
from base64 import b64decode
from binascii import Error, a2b_base64, b2a_base64, hexlify, unhexlify
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from app.errors import InvalidSignature, SignatureFault
from app.security.presented import CHALLENGE
from engine.types import Buffer
from schemas.ingest import PutIngestSignature, Scheme, SignatureEncoding, standard_webhooks_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


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


_SLACK_VERSION: Final = b"v0="
_STRIPE_ITEM: Final = re.compile(rb"([a-z0-9]{1,16})=([!-+\--~]{1,128})")


class Slack(HmacSignature):
    """Slack's Events API, commands and interactions: `v0=<hex>` of `v0:<time>:<body>`."""

    scheme: ClassVar[Scheme] = "slack"
    delivery_pointer: ClassVar[str | None] = "/event_id"
    name = "X-Slack-Signature"
    time_name: ClassVar[str] = "X-Slack-Request-Timestamp"
    form = "v0=<hexadecimal digits>"
    advice = "use the signing secret of the app's Basic Information, not its verification token"

    def _claim(self, head: Mapping[bytes, bytes], now_ms: int) -> Claim:
        value = self._value(head, self.name)
        seconds = self._value(head, self.time_name)
        if not value.startswith(_SLACK_VERSION):
            raise self._malformed(self.name, self.form)
        self._ensure_timely(self.time_name, seconds, now_ms)
        return Claim(b"v0:%b:" % seconds, [value[len(_SLACK_VERSION) :]])


class Zoom(Slack):
    """Zoom's event notifications: Slack's signature with Zoom's headers."""

    scheme = "zoom"
    delivery_pointer: ClassVar[str | None] = None
    name = "x-zm-signature"
    time_name = "x-zm-request-timestamp"
    advice = "use the secret token of the app's Features page, not its verification token"


class Stripe(HmacSignature):
    """Stripe: `t=<time>,v1=<hex>[,v1=<hex>…]` of `<time>.<body>`."""

    scheme = "stripe"
    delivery_pointer = "/id"
    name = "Stripe-Signature"
    form = "t=<seconds>,v1=<hexadecimal digits>"
    advice = "use the endpoint's signing secret, whsec_…, not an API key"

    def _claim(self, head: Mapping[bytes, bytes], now_ms: int) -> Claim:
        times: list[bytes] = []
        signatures: list[bytes] = []
        for item in self._value(head, self.name).split(b","):
            match = _STRIPE_ITEM.fullmatch(item)
            if match is None:
                raise self._malformed(self.name, self.form)
            if match[1] == b"t":
                times.append(match[2])
            elif match[1] == b"v1":
                signatures.append(match[2])
        if len(times) != 1 or not 1 <= len(signatures) <= MAX_SIGNATURES:
            raise self._malformed(self.name, self.form)
        self._ensure_timely(self.name, times[0], now_ms)
        return Claim(times[0] + b".", signatures)


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
    def _key(secret: str) -> Ed25519PublicKey | EllipticCurvePublicKey:
        """Return the key that a secret is."""

    @staticmethod
    @abstractmethod
    def _decoded(value: bytes) -> bytes | None:
        """Return the signature in a header; None if there is none."""

    @staticmethod
    @abstractmethod
    def _verify(
        key: Ed25519PublicKey | EllipticCurvePublicKey, signature: bytes, signed: bytes
    ) -> None:
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
    def _key(secret: str) -> Ed25519PublicKey | EllipticCurvePublicKey:
        return ed25519_key(unhexlify(secret))

    @staticmethod
    def _decoded(value: bytes) -> bytes | None:
        try:
            signature = unhexlify(value)
        except Error:
            return None
        return signature if hexlify(signature) == value else None

    @staticmethod
    def _verify(
        key: Ed25519PublicKey | EllipticCurvePublicKey, signature: bytes, signed: bytes
    ) -> None:
        key.verify(signature, signed)  # type: ignore[call-arg] # made by `_key`


class SendGrid(_PublicKeySignature):
    """Twilio SendGrid's event webhook: ECDSA with SHA-256, base64 of DER, of time and body."""

    scheme: ClassVar[Scheme] = "sendgrid"
    name = "X-Twilio-Email-Event-Webhook-Signature"
    time_name = "X-Twilio-Email-Event-Webhook-Timestamp"
    form = "base64"
    advice = "the secret is the verification key of the event webhook's security features"

    @staticmethod
    def _key(secret: str) -> Ed25519PublicKey | EllipticCurvePublicKey:
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
    def _verify(
        key: Ed25519PublicKey | EllipticCurvePublicKey, signature: bytes, signed: bytes
    ) -> None:
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA  # noqa: PLC0415  # as above
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415  # the same

        key.verify(signature, signed, ECDSA(SHA256()))  # type: ignore[call-arg] # made by `_key`


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
