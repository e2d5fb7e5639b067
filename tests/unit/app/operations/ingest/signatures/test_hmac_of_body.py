"""HMAC of the body: GitHub's documented example, and headers of any other sender."""

import pytest

from app.errors import InvalidSignature
from app.operations.ingest.signatures import GitHub, HmacOfBody
from schemas.ingest import PutIngestSignature

SECRET = "It's a Secret to Everybody"
BODY = b"Hello, World!"
DIGITS = b"757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"


def document(scheme: str, **more: object) -> PutIngestSignature:
    return PutIngestSignature.model_validate({"scheme": scheme, "secrets": [SECRET], **more})


def test_the_example_of_githubs_documentation_is_accepted() -> None:
    """It is in "Validating webhook deliveries", "Testing the webhook payload validation"."""
    head = {b"x-hub-signature-256": b"sha256=" + DIGITS}
    GitHub(document("github")).verify(head, BODY, 0)


def test_the_old_signature_alone_is_not_enough() -> None:
    """GitHub still sends SHA-1 in another header; the refusal says which one is needed."""
    head = {b"x-hub-signature": b"sha1=" + DIGITS[:40]}
    with pytest.raises(InvalidSignature, match=r"no X-Hub-Signature-256.*SHA-1, is not enough"):
        GitHub(document("github")).verify(head, BODY, 0)


def test_a_header_of_any_name_without_a_prefix_is_hexadecimal_sha256_by_default() -> None:
    """`hmac` needs nothing but the header's name, in any case."""
    HmacOfBody(document("hmac", header="X-Sign")).verify({b"x-sign": DIGITS}, BODY, 0)


def test_another_prefix_is_refused_with_the_expected_form() -> None:
    """The form names prefix, algorithm and encoding."""
    signature = HmacOfBody(document("hmac", header="X-Sign", prefix="sha256="))
    with pytest.raises(InvalidSignature, match="X-Sign is not sha256=<sha256 HMAC of the body in"):
        signature.verify({b"x-sign": b"sha512=" + DIGITS}, BODY, 0)
