"""An ingest profile as a value: what the hot path looks up is ready."""

from typing import Any

import pytest

from app.operations.ingest.profiles import DEFAULT_PROFILE, IngestProfile, Source
from schemas.ingest import PutIngestProfile
from tests.support.webhooks import WHSEC


def test_an_empty_document_is_the_default_profile() -> None:
    """A topic without a profile is treated as one with an empty document."""
    assert IngestProfile.of(PutIngestProfile()) == DEFAULT_PROFILE
    assert (DEFAULT_PROFILE.window_ms, DEFAULT_PROFILE.window_deliveries) == (345_600_000, 100_000)


def test_header_names_are_ready_to_look_up() -> None:
    """Names are bytes in lower case, each once; `content-type` is stored in any case."""
    profile = IngestProfile.of(
        PutIngestProfile.model_validate(
            {
                "split": "array",
                "key": {"pointer": "/id"},
                "headers": ["X-GitHub-Event", "Content-Type", "x-github-event", "X-Other"],
                "delivery_id": {"header": "X-GitHub-Delivery"},
            }
        )
    )
    assert profile.split == "array"
    assert profile.key == Source(pointer="/id")
    assert profile.headers == (b"x-github-event", b"x-other")
    assert profile.delivery_id == Source(headers=(b"x-github-delivery",))


@pytest.mark.parametrize(
    ("scheme", "delivery_id", "headers"),
    [
        ("github", Source(headers=(b"x-github-delivery",)), (b"x-github-event", b"x-more")),
        ("stripe", Source(pointer="/id"), (b"x-more",)),
        ("slack", Source(pointer="/event_id"), (b"x-more",)),
        (
            "standard-webhooks",
            Source(headers=(b"webhook-id",)),
            (b"webhook-timestamp", b"svix-timestamp", b"x-more"),
        ),
        ("hmac", None, (b"x-more",)),
    ],
)
def test_a_scheme_brings_its_delivery_id_and_its_headers(
    scheme: str, delivery_id: Source | None, headers: tuple[bytes, ...]
) -> None:
    """What the document says comes before and beside it."""
    signature = {"scheme": scheme, "secrets": [WHSEC]} | (
        {"header": "x-sign"} if scheme == "hmac" else {}
    )
    document: dict[str, Any] = {"signature": signature, "headers": ["X-More"]}
    profile = IngestProfile.of(PutIngestProfile.model_validate(document))
    assert profile.signature is not None
    assert (profile.delivery_id, profile.headers) == (delivery_id, headers)
    document["delivery_id"] = {"header": "X-Own"}
    profile = IngestProfile.of(PutIngestProfile.model_validate(document))
    assert profile.delivery_id == Source(headers=(b"x-own",))
