"""Senders of webhooks: each signs as its own SDK, or its documentation, says."""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import slack_sdk.signature
import standardwebhooks
import stripe
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, derive_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from schemas.ingest import PutIngestSignature

Head = dict[bytes, bytes]

TEXT_SECRET = "It's a Secret to Everybody"
WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PRIVATE_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
WHPK = "whpk_" + base64.b64encode(PRIVATE_KEY.public_key().public_bytes_raw()).decode()


def ec_public_key(number: int) -> str:
    """Return the public key of a private key that is a number."""
    key = derive_private_key(number, SECP256R1()).public_key()
    return base64.b64encode(
        key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    ).decode()


EC_KEY = derive_private_key(7, SECP256R1())
EC_PUBLIC_KEY = ec_public_key(7)


@dataclass(frozen=True)
class Sender:
    """One scheme with a secret, and how its sender signs a body."""

    name: str
    signature: Mapping[str, Any]
    """What the profile says, without its secrets."""
    secret: str
    sign: Callable[[str, bytes, int], Head]
    """The headers for a secret, a body and a time."""

    def document(self, *secrets: str) -> PutIngestSignature:
        given = list(secrets or (self.secret,))
        return PutIngestSignature.model_validate({**self.signature, "secrets": given})

    def head(self, body: bytes, now_ms: int) -> Head:
        return self.sign(self.secret, body, now_ms)


def _github(secret: str, body: bytes, now_ms: int) -> Head:
    mac = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {b"x-hub-signature-256": b"sha256=" + mac.encode()}


def _stripe(secret: str, body: bytes, now_ms: int) -> Head:
    signed = f"{now_ms // 1000}.{body.decode()}"
    mac = stripe.WebhookSignature._compute_signature(signed, secret)  # noqa: SLF001  # the SDK's own
    return {b"stripe-signature": f"t={now_ms // 1000},v1={mac}".encode()}


def _slack(secret: str, body: bytes, now_ms: int) -> Head:
    seconds = str(now_ms // 1000)
    verifier = slack_sdk.signature.SignatureVerifier(secret)
    signature = verifier.generate_signature(timestamp=seconds, body=body)
    assert signature is not None
    return {
        b"x-slack-request-timestamp": seconds.encode(),
        b"x-slack-signature": signature.encode(),
    }


def _standard(secret: str, body: bytes, now_ms: int) -> Head:
    time = datetime.fromtimestamp(now_ms // 1000, UTC)
    signature = standardwebhooks.Webhook(secret).sign("msg_1", time, body.decode())
    return _standard_head(signature.encode(), now_ms)


def _ed25519(_secret: str, body: bytes, now_ms: int) -> Head:
    signed = b"msg_1.%d.%b" % (now_ms // 1000, body)
    return _standard_head(b"v1a," + base64.b64encode(PRIVATE_KEY.sign(signed)), now_ms)


def _standard_head(signature: bytes, now_ms: int) -> Head:
    return {
        b"webhook-id": b"msg_1",
        b"webhook-timestamp": b"%d" % (now_ms // 1000),
        b"webhook-signature": signature,
    }


def _hmac(secret: str, body: bytes, now_ms: int) -> Head:
    mac = hmac.new(secret.encode(), body, hashlib.sha512).digest()
    return {b"x-shop-hmac": b"v2 " + base64.b64encode(mac)}


def _zoom(secret: str, body: bytes, now_ms: int) -> Head:
    seconds = b"%d" % (now_ms // 1000)
    mac = hmac.new(secret.encode(), b"v0:%b:%b" % (seconds, body), hashlib.sha256).hexdigest()
    return {b"x-zm-request-timestamp": seconds, b"x-zm-signature": b"v0=" + mac.encode()}


def _discord(_secret: str, body: bytes, now_ms: int) -> Head:
    seconds = b"%d" % (now_ms // 1000)
    signature = PRIVATE_KEY.sign(seconds + body).hex().encode()
    return {b"x-signature-timestamp": seconds, b"x-signature-ed25519": signature}


def _sendgrid(_secret: str, body: bytes, now_ms: int) -> Head:
    seconds = b"%d" % (now_ms // 1000)
    signature = base64.b64encode(EC_KEY.sign(seconds + body, ECDSA(SHA256())))
    name = b"x-twilio-email-event-webhook-"
    return {name + b"timestamp": seconds, name + b"signature": signature}


SENDERS = [
    Sender("github", {"scheme": "github"}, TEXT_SECRET, _github),
    Sender("stripe", {"scheme": "stripe"}, "whsec_a5jXN8AQM9LWM0D4lo", _stripe),
    Sender("slack", {"scheme": "slack"}, "8f742231b10e8888abcd99yyyzzz85a5", _slack),
    Sender("standard-webhooks", {"scheme": "standard-webhooks"}, WHSEC, _standard),
    Sender("ed25519", {"scheme": "standard-webhooks"}, WHPK, _ed25519),
    Sender(
        "hmac",
        {
            "scheme": "hmac",
            "header": "X-Shop-Hmac",
            "algorithm": "sha512",
            "encoding": "base64",
            "prefix": "v2 ",
        },
        TEXT_SECRET,
        _hmac,
    ),
    Sender("zoom", {"scheme": "zoom"}, "8f742231b10e8888abcd99yyyzzz85a5", _zoom),
    Sender(
        "discord",
        {"scheme": "discord"},
        PRIVATE_KEY.public_key().public_bytes_raw().hex(),
        _discord,
    ),
    Sender("sendgrid", {"scheme": "sendgrid"}, EC_PUBLIC_KEY, _sendgrid),
]


def _sha256(secret: str, body: bytes) -> hmac.HMAC:
    return hmac.new(secret.encode(), body, hashlib.sha256)


def _shopify(secret: str, body: bytes, now_ms: int) -> Head:
    return {
        b"x-shopify-hmac-sha256": base64.b64encode(_sha256(secret, body).digest()),
        b"x-shopify-topic": b"orders/create",
        b"x-shopify-shop-domain": b"a.myshopify.com",
        b"x-shopify-api-version": b"2025-07",
        b"x-shopify-webhook-id": b"%d" % now_ms,
        b"x-shopify-event-id": b"%d" % now_ms,
    }


def _linear(secret: str, body: bytes, now_ms: int) -> Head:
    return {
        b"linear-signature": _sha256(secret, body).hexdigest().encode(),
        b"linear-delivery": b"%d" % now_ms,
        b"linear-event": b"Issue",
    }


def _line(secret: str, body: bytes, now_ms: int) -> Head:
    return {b"x-line-signature": base64.b64encode(_sha256(secret, body).digest())}


def _gitlab(secret: str, body: bytes, now_ms: int) -> Head:
    return {b"x-gitlab-token": secret.encode(), b"x-gitlab-event": b"Push Hook"}


_KNOWN = {sender.name: sender for sender in SENDERS}

OF_THE_PAGE: Mapping[str, tuple[str, Callable[[str, bytes, int], Head]]] = {
    "GitHub": (TEXT_SECRET, _github),
    "Stripe": (_KNOWN["stripe"].secret, _stripe),
    "Slack": (_KNOWN["slack"].secret, _slack),
    "Shopify": (TEXT_SECRET, _shopify),
    "GitLab": (TEXT_SECRET, _gitlab),
    "Discord": (_KNOWN["discord"].secret, _discord),
    "Zoom": (TEXT_SECRET, _zoom),
    "SendGrid": (EC_PUBLIC_KEY, _sendgrid),
    "Svix, Clerk, Resend, OpenAI": (WHSEC, _standard),
    "Linear": (TEXT_SECRET, _linear),
    "LINE": (TEXT_SECRET, _line),
    "WhatsApp, Messenger": (TEXT_SECRET, _github),
}
"""Secret and signature of each sender in `docs/ingest/webhooks.md`."""
