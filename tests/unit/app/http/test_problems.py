"""Errors to problem documents: the table of the contract."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.errors import CommitTimedOut, MalformedRequest, malformed_json
from app.http.problems import INTERNAL, KINDS, kind_of, problem_answer
from engine import errors
from engine.errors import EngineError, leaf_errors
from engine.log.results import LogTag

# http-api.md section 7: situation, status, code, retryable, Kafka's number
TABLE: list[tuple[Exception, int, str, bool, int | None]] = [
    (MalformedRequest("x"), 400, "malformed_request", False, None),
    (errors.InvalidRecord("x"), 422, "invalid_record", False, 87),
    (errors.TopicNotFound("x"), 404, "topic_not_found", False, 3),
    (errors.TopicConflict("x"), 409, "topic_conflict", False, 36),
    (errors.SequenceGap("x"), 409, "sequence_gap", False, 45),
    (errors.ProducerFenced("x"), 403, "producer_fenced", False, 47),
    (errors.LogReplaced("x"), 409, "log_replaced", False, 100),
    (errors.InvalidTransactionState("x"), 409, "invalid_transaction_state", False, 48),
    (errors.InvalidConfig("x"), 422, "invalid_config", False, 40),
    (errors.PolicyViolation("x"), 422, "policy_violation", False, 44),
    (
        errors.StoredDataCorrupt("x", file=Path("f"), position=1, offset=2),
        500,
        "stored_data_corrupt",
        False,
        2,
    ),
    (errors.PreconditionFailed("x"), 412, "precondition_failed", False, None),
    (errors.OffsetBelowLogStart("x"), 410, "offset_below_log_start", False, 1),
    (errors.OffsetBeyondLogEnd("x"), 416, "offset_beyond_log_end", True, 1),
    (errors.TooLarge("x", limit="l", limit_bytes=1, actual_bytes=2), 413, "too_large", False, 10),
    (
        errors.BatchSetTooLarge("x", limit="l", limit_bytes=1, actual_bytes=2),
        413,
        "too_large",
        False,
        18,
    ),
    (errors.UnsupportedMagic("x"), 415, "unsupported_media_type", False, 43),
    (errors.UnsupportedCompression("x"), 415, "unsupported_media_type", False, 76),
    (errors.CorruptBatch("x"), 422, "corrupt_batch", True, 2),
    (errors.InvalidTimestamp("x"), 422, "invalid_timestamp", False, 32),
    (errors.Overloaded("x"), 503, "overloaded", True, None),
    (errors.Recovering("x"), 503, "recovering", True, None),
    (CommitTimedOut("x"), 504, "append_outcome_unknown", True, 7),
    (errors.StorageFull("x"), 507, "storage_full", True, 56),
    (errors.StorageOffline("x"), 503, "storage_offline", False, 56),
]


def document_of(error: Exception, trace: bytes | None = None) -> dict[str, Any]:
    """The problem document of an error."""
    made: dict[str, Any] = json.loads(bytes(problem_answer(error, path="/", trace=trace).body))
    return made


@pytest.mark.parametrize(
    ("error", "status", "code", "retryable", "kafka"),
    TABLE,
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
def test_each_error_has_its_row(
    error: Exception, status: int, code: str, *, retryable: bool, kafka: int | None
) -> None:
    """Status, code, whether to retry, and Kafka's number are those of the contract."""
    answer = problem_answer(error, path="/v1/x")
    problem = json.loads(bytes(answer.body))
    assert (answer.status, problem["status"], problem["code"]) == (status, status, code)
    assert (problem["retryable"], problem.get("kafka_error_code")) == (retryable, kafka)
    assert problem["instance"] == "/v1/x"
    has_time = (b"retry-after", b"1") in answer.headers
    assert has_time == (retryable and status == 503)


def test_every_engine_error_has_a_row() -> None:
    """No engine error falls through to "internal"."""
    assert set(leaf_errors(EngineError)) <= KINDS.keys()


def test_only_what_may_have_been_written_is_unknown() -> None:
    """Side effects are unknown where the outcome is, and nowhere else."""
    unknown = {error.__name__ for error, kind in KINDS.items() if kind.side_effects == "unknown"}
    assert unknown == {"CommitTimedOut"}
    for has_begun, effects in ((True, "unknown"), (False, "none")):
        error = errors.StorageOffline("x", has_begun=has_begun)
        assert document_of(error)["side_effects"] == effects


def test_an_unexpected_error_tells_nothing_of_the_inside() -> None:
    """An unexpected error is internal, with a trace id to find it in the log."""
    assert kind_of(ZeroDivisionError("secret")) is INTERNAL
    problem = document_of(ZeroDivisionError("secret"))
    assert "secret" not in str(problem)
    assert len(problem["trace_id"]) == 32


def test_facts_of_any_kind_can_be_told() -> None:
    """A tag becomes the ETag; what JSON has no word for becomes text."""
    error = errors.PreconditionFailed("x", tag=LogTag(1, 2, 3), where=Path("here"))
    problem = document_of(error)
    assert (problem["etag"], problem["where"]) == ('"1-2-00000003"', "here")


def test_half_a_pair_is_found_where_a_parser_stumbles() -> None:
    """A string of a few escapes is reported as half a pair exactly if it is not JSON."""
    escapes = (rb"\ud800", rb"\uDBff", rb"\udc00", rb"\u00e9", rb"\\", rb"\n", b"u")
    for count in range(1, 5):
        for pieces in product(escapes, repeat=count):
            text = b'"%b"' % b"".join(pieces)
            try:
                msgspec.json.decode(text)
                is_json = True
            except msgspec.DecodeError:
                is_json = False
            told = str(malformed_json(text, "no JSON"))
            assert ("is half of a surrogate pair" in told) is not is_json, text
