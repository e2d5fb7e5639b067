"""Problem documents as sentences for people."""

import msgspec
import pytest

from app.client.failures import Refused, refused


def test_a_problem_becomes_its_detail_with_status_and_code() -> None:
    """The sentence is the service's own; status and code are there to be searched for."""
    failure = Refused(404, {"code": "topic_not_found", "detail": "there is no topic 'x'"})
    assert str(failure) == "there is no topic 'x' (404 topic_not_found)"
    assert "tidelog create" in failure.advice


def test_the_first_wrong_record_is_named() -> None:
    """Of a list of errors a person sees how many and the first in full."""
    errors = [
        {"index": 3, "field": "timestamp", "code": "invalid", "detail": "must be a number"},
        {"index": 9, "field": "value", "code": "missing"},
    ]
    failure = Refused(422, {"code": "invalid_record", "title": "Invalid record", "errors": errors})
    assert str(failure) == (
        "Invalid record (422 invalid_record); first of 2: record 3, timestamp: must be a number"
    )


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        (
            {"code": "offset_below_log_start", "log_start_offset": 42},
            "Retention removed it: the oldest offset is 42.",
        ),
        (
            {"code": "too_large", "limit": "max.message.bytes", "limit_bytes": 10},
            "The service accepts at most 10 bytes (max.message.bytes).",
        ),
        (
            {"code": "offset_beyond_log_end"},
            "The next offset to be written is ?.",
        ),
        ({"code": "brand_new"}, ""),
    ],
)
def test_advice_uses_the_numbers_of_the_problem(problem: dict[str, object], advice: str) -> None:
    """What to do is said with the facts the service sent; unknown codes have no advice."""
    assert Refused(400, problem).advice == advice


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", msgspec.json.encode("text")])
def test_an_answer_of_something_else_still_has_a_code(body: bytes) -> None:
    """A body that is not a problem document is reported by its status."""
    failure = refused(502, body)
    assert failure.code == "http_502"
    assert "gave no reason" in str(failure)
    assert failure.is_retryable
