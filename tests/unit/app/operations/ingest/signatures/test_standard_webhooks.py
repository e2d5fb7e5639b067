"""Standard Webhooks: the example of its SDKs, keys of both kinds, and attacks on the format."""

import base64
import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.errors import InvalidSignature
from app.operations.ingest.signatures import StandardWebhooks
from schemas.ingest import PutIngestSignature
from tests.support.time import START_MS
from tests.support.webhooks import SENDERS, WHPK, WHSEC, Head, Sender

BODY = b'{"test": 2432232314}'
HMAC, ED25519 = SENDERS[3], SENDERS[4]


def signature(*secrets: str) -> StandardWebhooks:
    return StandardWebhooks(PutIngestSignature(scheme="standard-webhooks", secrets=list(secrets)))


def refused(secrets: list[str], head: Head, match: str, body: bytes = BODY) -> None:
    with pytest.raises(InvalidSignature, match=match):
        signature(*secrets).verify(head, body, START_MS)


def test_the_example_of_the_sdks_is_accepted() -> None:
    """The signature that the tests of each SDK of Standard Webhooks expect."""
    head = {
        b"webhook-id": b"msg_p5jXN8AQM9LWM0D4loKWxJek",
        b"webhook-timestamp": b"1614265330",
        b"webhook-signature": b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    signature(WHSEC).verify(head, BODY, 1614265330_000)


def test_a_profile_may_have_keys_of_both_kinds() -> None:
    """A sender that moves from HMAC to Ed25519 is understood before, while and after."""
    mixed = signature(WHSEC, WHPK)
    old, new = HMAC.head(BODY, START_MS), ED25519.head(BODY, START_MS)
    both = old[b"webhook-signature"] + b" " + new[b"webhook-signature"]
    for one in (old, new, {**old, b"webhook-signature": both}):
        mixed.verify(one, BODY, START_MS)


def test_a_version_that_is_not_known_is_passed_over() -> None:
    """As the specification demands, while one that is known decides."""
    head = HMAC.head(BODY, START_MS)
    head[b"webhook-signature"] = b"v9,what v1,wrong " + head[b"webhook-signature"]
    signature(WHSEC).verify(head, BODY, START_MS)
    refused([WHSEC], {**head, b"webhook-signature": b"v9,what"}, "is not v1,<base64> or v1a,")


def test_the_public_key_is_never_used_as_an_hmac_secret() -> None:
    """The public key cannot be used to sign."""
    key = base64.b64decode(WHPK.removeprefix("whpk_"))
    signed = b"msg_1.%d.%b" % (START_MS // 1000, BODY)
    forged = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    head = ED25519.head(BODY, START_MS)
    for version in (b"v1,", b"v1a,"):
        forgery = {**head, b"webhook-signature": version + forged}
        refused([WHPK], forgery, "is not one of this body")


def test_a_signed_time_cannot_become_a_part_of_the_body() -> None:
    """An id with a full stop would let one signature stand for several requests."""
    head = HMAC.head(b"1.x", START_MS)
    shifted = {**head, b"webhook-id": b"msg_1.%b" % head[b"webhook-timestamp"]}
    shifted[b"webhook-timestamp"] = b"1"
    refused([WHSEC], shifted, "webhook-id is not an id without a full stop", b"x")


def test_a_signature_of_ed25519_has_one_spelling() -> None:
    """Unused bits of base64, white space and missing padding are refused."""
    head = ED25519.head(BODY, START_MS)
    text = head[b"webhook-signature"]
    assert text.endswith(b"==")
    last = {b"A": b"B", b"Q": b"R", b"g": b"h", b"w": b"x"}[text[-3:-2]]
    for other in (text[:-3] + last + b"==", text[:-2], text + b"=", text.replace(b",", b",\n")):
        refused([WHPK], {**head, b"webhook-signature": other}, "webhook-signature")


def test_the_number_of_signatures_is_bounded() -> None:
    """A request cannot make the service compare without end."""
    head = HMAC.head(BODY, START_MS)
    value = b" ".join([b"v1a," + b"A" * 86 + b"=="] * 8 + [head[b"webhook-signature"]])
    refused([WHSEC], {**head, b"webhook-signature": value}, "is not at most 8 signatures")


def test_the_number_of_hashes_is_bounded() -> None:
    """Ed25519 hashes the body once for each pair of a signature and a key."""
    head = ED25519.head(BODY, START_MS)
    others = [Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32).public_key() for n in range(3)]
    keys = [WHPK]
    keys += ["whpk_" + base64.b64encode(key.public_bytes_raw()).decode() for key in others]
    real = head[b"webhook-signature"]
    other = b"v1a," + b"A" * 86 + b"=="
    two = {**head, b"webhook-signature": b" ".join([other, real])}
    signature(*keys).verify(two, BODY, START_MS)
    three = {**head, b"webhook-signature": b" ".join([other, other, real])}
    refused(keys, three, "is not at most 2 v1a signatures")


@pytest.mark.parametrize("sender", [HMAC, ED25519])
def test_svix_sends_the_same_under_its_own_names(sender: Sender) -> None:
    """Its default; what a request has under both names is taken by the specification's."""
    head = sender.head(BODY, START_MS)
    svix = {name.replace(b"webhook-", b"svix-"): value for name, value in head.items()}
    secret = sender.secret
    signature(secret).verify(svix, BODY, START_MS)
    signature(secret).verify({**dict.fromkeys(svix, b"other"), **head}, BODY, START_MS)
    refused([secret], {**svix, b"svix-id": b"other"}, "is not one of this body")
    refused([secret], {**svix, b"svix-timestamp": b"1"}, "behind this service's clock")
    del svix[b"svix-id"]
    refused([secret], svix, "the request has no webhook-id")
