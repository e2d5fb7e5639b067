"""The OpenAPI document: current, valid, complete, and true."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from pydantic import TypeAdapter, ValidationError

from app.api.application import document_text
from app.http.problems import KINDS
from schemas.fetch import RecordPage, RecordPageWithStringOffsets
from schemas.fetch_many import (
    FetchPage,
    FetchPageWithStringOffsets,
    TopicPage,
    TopicPageWithStringOffsets,
)
from schemas.maintenance import (
    CompactionRange,
    CompactionReport,
    FlushReport,
    RetentionReport,
    RollReport,
    SegmentList,
    TruncateReport,
)
from schemas.offsets import OffsetAtTime, Offsets, TopicOffsets
from schemas.problems import Problem
from schemas.produce import AppendReceipt, RecordsIn, TopicAppendReceipt
from schemas.topics import Partition, PartitionList, Topic, TopicList
from tests.support.generators import DOCUMENT as COMMITTED
from tests.support.service import OFFSETS, RECORDS, running

DOCUMENT: dict[str, Any] = json.loads(document_text())

FETCH = {"partitions": [{"topic": "events", "partition": 0}, {"topic": "events", "partition": 9}]}

OPERATIONS = {
    "listTopics",
    "putTopic",
    "getTopic",
    "updateTopic",
    "deleteTopic",
    "listPartitions",
    "getPartition",
    "ingestWithToken",
    "checkIngestWithToken",
    "allowIngest",
    "allowIngestWithToken",
    "restoreTopic",
    "getTopicRestore",
    "getValueSchema",
    "putValueSchema",
    "deleteValueSchema",
    "getIngestProfile",
    "putIngestProfile",
    "deleteIngestProfile",
    "createIngestToken",
    "listIngestTokens",
    "deleteIngestToken",
    "appendTopicRecords",
    "appendRecords",
    "appendBatches",
    "ingest",
    "checkIngest",
    "ingestOtlp",
    "ingestHec",
    "checkHec",
    "allowHec",
    "readRecords",
    "readBatches",
    "tailRecords",
    "tailTopic",
    "fetchMany",
    "readTopic",
    "getOffsets",
    "getOffsetAt",
    "getTopicOffsets",
    "listSegments",
    "downloadSegment",
    "planSplits",
    "rollSegment",
    "flushLog",
    "runRetention",
    "deleteRecords",
    "truncateLog",
    "compactLog",
    "getCompaction",
    "listDirectories",
    "getScrubReport",
    "movePartition",
    "listMoves",
    "getMove",
    "allocateProducer",
    "listProducers",
    "getAppendOutcome",
    "endTransaction",
    "listGroups",
    "listGroupOffsets",
    "getGroupOffset",
    "putGroupOffset",
    "deleteGroupOffset",
    "getGroupLag",
    "listSubscriptions",
    "getSubscription",
    "putSubscription",
    "updateSubscription",
    "deleteSubscription",
    "testSubscription",
    "renewLease",
    "listLeases",
    "releaseLease",
    "kafkaRestListBrokers",
    "kafkaRestListTopics",
    "kafkaRestGetTopic",
    "kafkaRestProduceToTopic",
    "kafkaRestListPartitions",
    "kafkaRestGetPartition",
    "kafkaRestProduceToPartition",
    "kafkaRestGetOffsets",
    "kafkaRestReadRecords",
    "getService",
    "getCaller",
    "getSettings",
    "listKeys",
    "listTopicConfigs",
    "getLiveness",
    "getReadiness",
    "getMetrics",
    "getHistory",
    "getLimits",
    "listGroupLags",
    "listIngestRefusals",
}


def operations() -> Iterator[dict[str, Any]]:
    for path in DOCUMENT["paths"].values():
        yield from path.values()


def test_the_committed_document_is_the_generated_one() -> None:
    """A change of the API is committed with the document: `make openapi`."""
    assert COMMITTED.read_text(encoding="utf-8") == document_text()


def test_the_document_is_valid() -> None:
    """It is OpenAPI 3.1, every reference leads somewhere."""
    assert DOCUMENT["openapi"].startswith("3.1")
    validate(DOCUMENT)


def test_every_operation_has_its_stable_name_and_one_tag() -> None:
    """Generated clients name their methods after these."""
    names = [one["operationId"] for one in operations()]
    assert set(names) == OPERATIONS
    assert len(names) == len(OPERATIONS)
    assert all(len(one["tags"]) == 1 for one in operations())
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    assert {one["tags"][0] for one in operations()} <= tags


def test_errors_are_shared_components_with_examples() -> None:
    """Each error status is a reference; each code of the table is an example somewhere."""
    examples: set[str] = set()
    for response in DOCUMENT["components"]["responses"].values():
        for media in response["content"].values():
            examples |= media.get("examples", {}).keys()  # a message of protobuf has none
    # 405 and 408 belong to the framework and to slow clients, not to one operation
    assert {kind.code for kind in KINDS.values()} - examples <= {"method_not_allowed"}
    for operation in operations():
        for status, response in operation["responses"].items():
            if int(status) >= 400 and operation["operationId"] != "getReadiness":
                assert response.keys() == {"$ref"}, (operation["operationId"], status)


def test_no_impossible_response_is_documented() -> None:
    """A framework's own responses, unnamed successes and untyped bodies are not in it."""
    for operation in operations():
        for status, response in operation["responses"].items():
            place = (operation["operationId"], status)
            assert response.get("description") != "Successful Response", place
            for media in response.get("content", {}).values():
                assert media["schema"], place


MEMBERS = {
    "invalid_record": {"errors"},
    "sequence_gap": {"expected", "received"},
    "log_replaced": {"log_id", "expected_log_id"},
    "stored_data_corrupt": {"topic", "partition", "file", "position", "offset"},
    "precondition_failed": {"etag", "log_end_offset"},
    "offset_below_log_start": {"log_start_offset", "high_watermark", "log_end_offset"},
    "offset_beyond_log_end": {"log_start_offset", "high_watermark", "log_end_offset"},
    "too_large": {"limit", "limit_bytes", "actual_bytes"},
    "append_outcome_unknown": {"outcome"},
    "expired_timestamp": {"errors", "retention_ms"},
    "unsupported_media_type": {"accepted"},
}


def test_examples_of_problems_have_their_members() -> None:
    """Those of the table of the contract, Kafka's number among them; none shows a path."""
    found: dict[str, dict[str, Any]] = {}
    for response in DOCUMENT["components"]["responses"].values():
        content = response["content"].get("application/problem+json", {})
        found |= {code: one["value"] for code, one in content.get("examples", {}).items()}
    for code, example in found.items():
        Problem.model_validate(example)
        assert "/data" not in str(example)
        assert MEMBERS.get(code, set()) <= example.keys(), code
    numbers = {code: example.get("kafka_error_code") for code, example in found.items()}
    assert (numbers["topic_not_found"], numbers["group_not_found"]) == (3, 3)
    assert (numbers["sequence_gap"], numbers["storage_offline"]) == (45, 56)


def test_an_operation_that_reads_a_body_can_end_before_the_body_does() -> None:
    """It may be late, too large, or of another type: each has its status."""
    for operation in operations():
        if "requestBody" in operation:
            name = operation["operationId"]
            late = "503" if name == "ingestOtlp" else "408"  # which exporters would give up after
            assert {late, "413", "415"} <= operation["responses"].keys(), name


def test_bodies_have_examples_that_are_right() -> None:
    """The examples of the document are valid against its own models."""
    schemas = DOCUMENT["components"]["schemas"]
    RecordsIn.model_validate(schemas_example("appendRecords"))
    assert {"RecordsIn", "RecordIn", "RecordOut", "Problem", "PutTopic"} <= schemas.keys()
    assert "HTTPValidationError" not in schemas


def test_each_body_that_can_be_read_has_an_example() -> None:
    """Requests and responses; bodies of bytes that are not text have no example."""
    for operation in operations():
        bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
        contents = {
            name: media for body in bodies for name, media in body.get("content", {}).items()
        }
        for name, media in contents.items():
            is_text = name.startswith("text/") or name.endswith("json")
            has_example = not {"example", "examples"}.isdisjoint(media)
            assert has_example or not is_text, (operation["operationId"], name)


def schemas_example(operation_id: str) -> object:
    (operation,) = (one for one in operations() if one["operationId"] == operation_id)
    return operation["requestBody"]["content"]["application/json"]["example"]


@pytest.mark.anyio
async def test_what_is_answered_is_what_the_models_say(tmp_path: Path) -> None:
    """Answers that are joined from bytes have exactly the members of their models."""
    async with running(tmp_path) as api:
        get, post = api.client.get, api.client.post
        log = "/v1/topics/events/partitions/0"
        await api.create(partitions=2)
        await api.append({"deep": [1, None]}, key="k", headers=[{"key": "h", "value": "x"}])
        await api.create("kept", cleanup_policy="compact")
        kept = "/v1/topics/kept/partitions/0"
        records = {"records": [{"value": None}]}
        for model, answer in (
            (Topic, await get("/v1/topics/events")),
            (TopicList, await get("/v1/topics")),
            (PartitionList, await get("/v1/topics/events/partitions")),
            (Partition, await get(log)),
            (AppendReceipt, await post(RECORDS, json=records)),
            (TopicAppendReceipt, await post("/v1/topics/events/records", json=records)),
            (RecordPage, await get(RECORDS)),
            (
                RecordPageWithStringOffsets,
                await get(f"{RECORDS}?offsets=string&encoding=base64"),
            ),
            (FetchPage, await post("/v1/fetch", json=FETCH)),
            (
                FetchPageWithStringOffsets,
                await post("/v1/fetch", json={**FETCH, "offsets": "string"}),
            ),
            (TopicPage, await get("/v1/topics/events/records")),
            (
                TopicPageWithStringOffsets,
                await get("/v1/topics/events/records?offsets=string"),
            ),
            (Offsets, await get(OFFSETS)),
            (OffsetAtTime, await get(f"{log}/offset-at?timestamp=0")),
            (TopicOffsets, await get("/v1/topics/events/offsets")),
            (TopicOffsets, await get("/v1/topics/events/offsets?timestamp=latest")),
            (SegmentList, await get(f"{log}/segments")),
            (RollReport, await post(f"{log}/roll")),
            (FlushReport, await post(f"{log}/flush")),
            (RetentionReport, await post(f"{log}/retention?dry_run=true")),
            (CompactionRange, await get(f"{kept}/compaction")),
            (CompactionReport, await post(f"{kept}/compact")),
            (
                TruncateReport,
                await post(
                    f"{log}/truncate",
                    json={"to_offset": 0},
                    headers={"if-match": (await get(OFFSETS)).headers["etag"]},
                ),
            ),
            (Problem, await get("/v1/topics/nowhere")),
        ):
            TypeAdapter(model).validate_json(answer.content, strict=True)


@pytest.mark.anyio
async def test_strings_of_digits_are_a_media_type_of_their_own(tmp_path: Path) -> None:
    """`offsets=string` has another schema, so a client of plain JSON never gets a string (R14)."""
    async with running(tmp_path) as api:
        await api.create()
        await api.append(1)
        for how, media_type in (
            ("number", "application/json"),
            ("string", "application/json;offsets=string"),
        ):
            page = await api.client.get(RECORDS, params={"offsets": how})
            assert page.headers["content-type"] == media_type
            fetched = await api.client.post("/v1/fetch", json={**FETCH, "offsets": how})
            assert fetched.headers["content-type"] == media_type


def test_models_refuse_what_they_do_not_know() -> None:
    """An unknown field is a mistake and is refused."""
    with pytest.raises(ValidationError):
        RecordsIn.model_validate({"records": [{"value": 1}], "more": 1})
