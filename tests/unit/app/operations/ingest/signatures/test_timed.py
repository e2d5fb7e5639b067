"""Slack's documented example, and Stripe's header with several signatures."""

import pytest

from app.errors import InvalidSignature
from app.operations.ingest.signatures import Slack, Stripe
from schemas.ingest import PutIngestSignature
from tests.support.time import START_MS
from tests.support.webhooks import SENDERS

BODY = b'{"id": "evt_1"}'
STRIPE = SENDERS[1]


def test_the_example_of_slacks_documentation_is_accepted() -> None:
    """It is in "Verifying requests from Slack", step by step, for a slash command."""
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
        b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    head = {
        b"x-slack-request-timestamp": b"1531420618",
        b"x-slack-signature": (
            b"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
        ),
    }
    document = PutIngestSignature(scheme="slack", secrets=[secret])
    Slack(document).verify(head, body, 1531420618_000)


def test_one_of_several_signatures_is_enough() -> None:
    """While a secret is rolled, Stripe signs with both; schemes other than v1 are passed over."""
    head = STRIPE.head(BODY, START_MS)
    time, _, mac = head[b"stripe-signature"].partition(b",v1=")
    wrong = b"0" * 64
    signature = Stripe(STRIPE.document())
    for items in ([wrong, mac], [mac, wrong], [wrong] * 7 + [mac]):
        value = time + b"".join(b",v1=" + one for one in items) + b",v0=" + wrong
        signature.verify({b"stripe-signature": value}, BODY, START_MS)


@pytest.mark.parametrize("extra", [b",t=1", b",v1=" + b",v1=".join([b"0" * 64] * 8), b",", b",V"])
def test_a_header_with_two_times_or_too_many_signatures_is_refused(extra: bytes) -> None:
    """A sender cannot choose which time was signed, or how long the comparison takes."""
    head = STRIPE.head(BODY, START_MS)
    head[b"stripe-signature"] += extra
    with pytest.raises(InvalidSignature, match="Stripe-Signature is not t=<seconds>"):
        Stripe(STRIPE.document()).verify(head, BODY, START_MS)


def test_a_time_or_a_signature_that_is_missing_in_the_header_is_refused() -> None:
    """Both are needed, whatever else the header has."""
    for value in (b"t=1", b"v1=" + b"0" * 64, b"t=1,v0=" + b"0" * 64):
        with pytest.raises(InvalidSignature, match="Stripe-Signature is not t=<seconds>"):
            Stripe(STRIPE.document()).verify({b"stripe-signature": value}, BODY, START_MS)
