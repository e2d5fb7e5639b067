"""An ingest profile as a value: what the hot path looks up is ready."""

from app.operations.ingest.profile import DEFAULT_PROFILE, IngestProfile, Source
from schemas.ingest import PutIngestProfile


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
    assert profile.delivery_id == Source(header=b"x-github-delivery")
