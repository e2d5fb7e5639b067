"""Signatures of all schemes: what is accepted, what is refused, and what a refusal says."""

import hmac
import re
from collections.abc import Iterator

import pytest

from app.errors import InvalidSignature
from app.operations.ingest.signatures import Signature, signature_of
from schemas.ingest import DEFAULT_TOLERANCE_MS, standard_webhooks_key
from tests.support.time import START_MS
from tests.support.webhooks import EC_PUBLIC_KEY, SENDERS, Head, Sender, ec_public_key

BODY = b'{"id": "evt_1", "text": "' + b"x" * 20 + b'"}'
TIMED = [one for one in SENDERS if one.name not in {"github", "hmac"}]

by_sender = pytest.mark.parametrize("sender", SENDERS, ids=[one.name for one in SENDERS])
by_timed_sender = pytest.mark.parametrize("sender", TIMED, ids=[one.name for one in TIMED])


def refusal(signature: Signature, head: Head, body: bytes = BODY, now_ms: int = START_MS) -> str:
    """Return the text of a refusal; fails if the request is accepted."""
    with pytest.raises(InvalidSignature) as refused:
        signature.verify(head, body, now_ms)
    assert "www-authenticate" in refused.value.headers
    return str(refused.value)


def changed(text: bytes) -> Iterator[bytes]:
    """Yield the text with each of its bits changed in turn."""
    for index in range(len(text)):
        for bit in range(8):
            flipped = bytes([text[index] ^ (1 << bit)])
            yield text[:index] + flipped + text[index + 1 :]


def other_secret(secret: str, place: int = 10) -> str:
    """Return another secret of the same kind: a letter differs, or it is another key."""
    if secret == EC_PUBLIC_KEY:
        return ec_public_key(place)
    others = "bc" if re.fullmatch("[0-9a-f]+", secret) else "BC"
    return secret[:place] + others[secret[place] == others[0]] + secret[place + 1 :]


@by_sender
def test_what_the_sender_signed_is_accepted(sender: Sender) -> None:
    """The SDK's own signature passes, and so does one of any body of bytes."""
    signature = signature_of(sender.document())
    for body in (BODY, b"", "é".encode(), b"x" * 100_000):
        signature.verify(sender.head(body, START_MS), body, START_MS)
        signature.verify(sender.head(body, START_MS), memoryview(body), START_MS)


@by_sender
def test_every_single_bit_change_is_refused(sender: Sender) -> None:
    """Of the body, of each header that is signed or has the signature, and of its time."""
    signature = signature_of(sender.document())
    head = sender.head(BODY, START_MS)
    for body in changed(BODY):
        refusal(signature, head, body)
    for name, value in head.items():
        for other in changed(value):
            refusal(signature, {**head, name: other})


@by_sender
def test_every_single_bit_change_of_the_secret_is_refused(sender: Sender) -> None:
    """A profile with a secret that differs in one bit accepts nothing of the right one."""
    head = sender.head(BODY, START_MS)
    tried = 0
    for secret in changed(sender.secret.encode()):
        try:
            signature = signature_of(sender.document(secret.decode()))
        except ValueError:
            continue  # not a secret at all
        try:
            signature.verify(head, BODY, START_MS)
        except InvalidSignature:
            tried += 1
        else:
            assert _is_the_same_key(secret.decode(), sender.secret)
    assert tried > 50 or sender.secret == EC_PUBLIC_KEY  # hardly any point is on the curve


def _is_the_same_key(one: str, other: str) -> bool:
    """Whether two texts are one key: base64 has bits at its end that do not count."""
    return standard_webhooks_key(one) == standard_webhooks_key(other)


@by_sender
def test_two_secrets_are_valid_while_one_replaces_the_other(sender: Sender) -> None:
    """Requests signed with either are accepted; with the old one no more when it is gone."""
    new = other_secret(sender.secret)
    head = sender.head(BODY, START_MS)
    signature_of(sender.document(new, sender.secret)).verify(head, BODY, START_MS)
    signature_of(sender.document(sender.secret, new)).verify(head, BODY, START_MS)
    text = refusal(signature_of(sender.document(new, other_secret(sender.secret, 20))), head)
    assert "any of the profile's 2 secrets" in text


@pytest.mark.parametrize("position", range(3))
def test_every_secret_is_compared_with_every_signature(
    position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them match, so that the time does not tell which one did."""
    stripe = SENDERS[1]
    secrets = [stripe.secret, stripe.secret + "2", stripe.secret + "3"]
    head = stripe.sign(secrets[position], BODY, START_MS)
    head[b"stripe-signature"] += b",v1=" + b"0" * 64
    compared: list[tuple[object, object]] = []
    compare = hmac.compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    signature_of(stripe.document(*secrets)).verify(head, BODY, START_MS)
    assert len(compared) == len(set(compared)) == 3 * 2


@by_timed_sender
def test_a_signed_time_is_valid_up_to_the_tolerance(sender: Sender) -> None:
    """On both sides, to the millisecond; a change of the time needs another signature."""
    signature = signature_of(sender.document())
    head = sender.head(BODY, START_MS)
    for skew_ms in (-DEFAULT_TOLERANCE_MS, DEFAULT_TOLERANCE_MS):
        signature.verify(head, BODY, START_MS + skew_ms)
        beyond = 1 if skew_ms > 0 else -1
        refusal(signature, head, now_ms=START_MS + skew_ms + beyond)
    strict = signature_of(sender.document().model_copy(update={"tolerance_ms": 1000}))
    strict.verify(head, BODY, START_MS + 1000)
    refusal(strict, head, now_ms=START_MS + 1001)


@by_timed_sender
def test_a_refusal_says_how_far_the_clocks_are_apart(sender: Sender) -> None:
    """In seconds, which side is ahead, what this service's clock says, and what is allowed."""
    signature = signature_of(sender.document())
    head = sender.head(BODY, START_MS)
    late = refusal(signature, head, now_ms=START_MS + 412_000)
    assert "is 412 s behind this service's clock (2026-11-" in late
    assert "the profile allows 300 s" in late
    assert "is 301 s ahead of this service's clock" in refusal(
        signature, head, now_ms=START_MS - 301_000
    )
    with pytest.raises(InvalidSignature, match="412 s behind"):  # before the body has come
        signature.check(head, START_MS + 412_000)


@by_timed_sender
@pytest.mark.parametrize("time", ["", "-1", "1e9", "1.5", " 1", "१", "9" * 13, "now"])
def test_a_time_that_is_not_digits_is_refused(sender: Sender, time: str) -> None:
    """Only one spelling of a time is accepted, and no number is too large to be refused."""
    signature = signature_of(sender.document())
    seconds = b"%d" % (START_MS // 1000)
    head = {
        name: value.replace(seconds, time.encode())
        for name, value in sender.head(BODY, START_MS).items()
    }
    text = refusal(signature, head)
    assert "is not" in text
    assert sender.signature["scheme"] in text


@by_sender
def test_a_missing_header_is_named_with_the_scheme(sender: Sender) -> None:
    """Each header that the scheme needs, before the body has come too."""
    signature = signature_of(sender.document())
    head = sender.head(BODY, START_MS)
    for name in head:
        rest = {other: value for other, value in head.items() if other != name}
        with pytest.raises(InvalidSignature) as refused:
            signature.check(rest, START_MS)
        assert refused.value.reason == "missing"
        assert f"the request has no {refused.value.facts()['header']}: " in str(refused.value)
        assert str(refused.value.facts()["header"]).lower() == name.decode()
        assert f"expects the scheme {sender.signature['scheme']}" in str(refused.value)


def test_a_request_of_another_scheme_is_recognized() -> None:
    """GitHub's header at a profile for Stripe is named, with the scheme that it belongs to."""
    github, stripe = SENDERS[0], SENDERS[1]
    text = refusal(signature_of(stripe.document()), github.head(BODY, START_MS))
    assert "no Stripe-Signature" in text
    assert "x-hub-signature-256 is the header of the scheme github" in text


@by_sender
def test_no_refusal_has_a_secret_or_a_signature(sender: Sender) -> None:
    """Neither the secret, nor the expected signature, nor the value of a header."""
    signature = signature_of(sender.document())
    head = sender.head(BODY, START_MS)
    wrong = signature_of(sender.document(other_secret(sender.secret)))
    texts = [refusal(wrong, head), refusal(signature, head, BODY + b" ")]
    texts += [refusal(signature, {**head, name: sender.secret.encode()}) for name in head]
    for text in texts:
        assert sender.secret not in text
        for piece in re.findall(r"[\w/+]{20,}", " ".join(map(bytes.decode, head.values()))):
            assert piece not in text


@by_sender
@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b",", b"=", b" ", b"v1", "é".encode()])
def test_hostile_headers_are_refused(sender: Sender, value: bytes) -> None:
    """Empty values, bytes that are not ASCII, and separators alone end in a refusal."""
    signature = signature_of(sender.document())
    head = sender.head(BODY, START_MS)
    for name in head:
        refusal(signature, {**head, name: value})
        if name != b"webhook-signature":  # a list, of which one that is right is enough
            refusal(signature, {**head, name: head[name] + b", " + head[name]})  # sent twice
