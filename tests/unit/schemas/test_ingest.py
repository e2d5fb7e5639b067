"""The document of an ingest profile: what it takes, and what it says about what it refuses."""

import base64
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.ingest import PutIngestProfile, standard_webhooks_key

SECRET = "It's a Secret to Everybody"
WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
WHPK = "whpk_" + base64.b64encode(bytes(range(32))).decode()


def signed(scheme: str = "github", **more: Any) -> dict[str, Any]:
    return {"signature": {"scheme": scheme, "secrets": [SECRET], **more}}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"split": "lines", "key": {"header": "X-Key"}, "headers": ["X-GitHub-Event"]},
        {"key": {"pointer": "/repository/full_name"}, "delivery_id": {"pointer": "/a~1b/0/~0"}},
        {"window_ms": 1000, "window_deliveries": 1_000_000},
        signed(tolerance_ms=300_000),
        signed("stripe"),
        signed("slack", secrets=[SECRET, SECRET + "2"], secrets_count=2),
        signed("standard-webhooks", secrets=[WHSEC, WHPK, WHSEC.removeprefix("whsec_")[:-1]]),
        signed("hmac", header="X-Sign", algorithm="sha512", encoding="base64", prefix="sha512="),
    ],
)
def test_a_profile_of_the_contract_is_taken(document: dict[str, Any]) -> None:
    """Every member is optional, and each scheme takes what it needs."""
    profile = PutIngestProfile.model_validate(document)
    assert profile.model_dump(exclude_unset=True) == document


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"split": "words"}, "'none', 'array', 'lines' or 'values'"),
        ({"key": {}}, "either pointer or header"),
        ({"key": {"pointer": "/a", "header": "b"}}, "either pointer or header"),
        ({"key": {"pointer": "a"}}, "should match pattern"),
        ({"key": {"pointer": "/a~2"}}, "should match pattern"),
        ({"headers": ["two words"]}, "should match pattern"),
        ({"headers": ["Authorization"]}, "Authorization has credentials and is never stored"),
        ({"headers": ["X-Api-Key"]}, "X-Api-Key has credentials and is never stored"),
        ({"headers": ["Tidelog-Delivery-Id"]}, "names that begin with tidelog- are reserved"),
        ({"window_ms": 999}, "greater than or equal to 1000"),
        ({"window_deliveries": 1_000_001}, "less than or equal to 1000000"),
        (signed("sms"), "'sendgrid', 'hmac' or 'token-header'"),
        (signed(secrets=[]), "at least 1 item"),
        (signed(secrets=[""]), "at least 8 characters"),
        (signed(secrets=[SECRET] * 9), "at most 8 items"),
        (signed(secrets=[SECRET, SECRET]), "secrets has the same secret twice"),
        (signed(secrets=[SECRET, SECRET + "\n"]), "secrets[1] begins or ends with white space"),
        (signed(tolerance_ms=999), "greater than or equal to 1000"),
        (signed(header="x-sign"), "header is for the scheme hmac: github brings its own"),
        (signed("slack", prefix="v0="), "prefix is for the scheme hmac: slack brings its own"),
        (signed("hmac"), "the scheme hmac needs header"),
        (signed("hmac", header="x", algorithm="md5"), "'sha256' or 'sha512'"),
        (signed("standard-webhooks", secrets=["whsec_ü-------"]), "is not whsec_ or whpk_"),
        (signed("standard-webhooks", secrets=["whsec_AAAA"]), "is a key of 3 bytes"),
        (signed("standard-webhooks", secrets=["whpk_" + "A" * 32]), "a public key of 24 bytes"),
        (signed("standard-webhooks", secrets=["whsk_" + "A" * 88]), "send the public one, whpk_"),
    ],
)
def test_a_wrong_profile_is_refused_with_what_is_wrong(
    document: dict[str, Any], words: str
) -> None:
    """The message names the member and what it takes, and never a secret."""
    with pytest.raises(ValidationError) as refused:
        PutIngestProfile.model_validate(document)
    messages = [fault["msg"] for fault in refused.value.errors(include_input=False)]
    assert words in " ".join(messages)
    assert SECRET not in " ".join(messages)


def test_a_secret_is_not_in_the_text_of_a_profile() -> None:
    """What is logged or shown while debugging has no secret."""
    assert SECRET not in repr(PutIngestProfile.model_validate(signed()))


def test_a_key_of_standard_webhooks_is_decoded_with_or_without_its_padding() -> None:
    """The prefix says which kind it is; without one it is an HMAC key, as the SDKs take it."""
    key = base64.b64decode(WHSEC.removeprefix("whsec_"))
    assert standard_webhooks_key(WHSEC) == (False, key)
    assert standard_webhooks_key(WHSEC.removeprefix("whsec_").rstrip("=")) == (False, key)
    assert standard_webhooks_key(WHPK) == (True, bytes(range(32)))
