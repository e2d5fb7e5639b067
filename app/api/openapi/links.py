"""The document's links: which requests an answer leads on to, and what of it they take.

For programs that walk an API by its document. Values are runtime expressions (OpenAPI 3.1), or
constants. Links have parameters only: openapi-generator refuses an object as `requestBody`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

Json: TypeAlias = dict[str, Any]


class _Ways(NamedTuple):
    """The operations that one kind of answer leads on to."""

    operations: tuple[str, ...]
    parameters: Mapping[str, str]


_TOPIC: Final = {"path.topic": "$request.path.topic"}
_FIRST_LOG: Final = {**_TOPIC, "path.partition": "0"}
_LOG: Final = {**_TOPIC, "path.partition": "$request.path.partition"}
_GROUP: Final = {"path.group": "$request.path.group"}
_GROUP_OFFSET: Final = {**_GROUP, **_LOG}

_OF_TOPICS: Final = (
    "getTopic",
    "updateTopic",
    "deleteTopic",
    "listPartitions",
    "appendTopicRecords",
    "getTopicOffsets",
    "planSplits",
    "kafkaRestGetTopic",
    "kafkaRestListPartitions",
    "kafkaRestProduceToTopic",
)
_OF_LOGS: Final = (
    "getPartition",
    "appendRecords",
    "appendBatches",
    "readRecords",
    "readBatches",
    "tailRecords",
    "getOffsets",
    "listSegments",
    "rollSegment",
    "flushLog",
    "runRetention",
    "deleteRecords",
    "compactLog",
    "getMove",
    "movePartition",
    "listProducers",
    "kafkaRestGetPartition",
    "kafkaRestProduceToPartition",
    "kafkaRestGetOffsets",
)

_FROM_A_TOPIC: Final = (
    _Ways(_OF_TOPICS, _TOPIC),
    _Ways(_OF_LOGS, _FIRST_LOG),
    _Ways(("kafkaRestReadRecords",), {**_FIRST_LOG, "query.offset": "0"}),
)
_FROM_AN_APPEND: Final = (
    _Ways(("readRecords", "readBatches"), {**_LOG, "query.offset": "$response.body#/base_offset"}),
    _Ways(("appendRecords",), {**_LOG, "header.if-match": "$response.header.ETag"}),
    _Ways(("truncateLog",), {**_LOG, "header.if-match": "$response.header.ETag"}),
    _Ways(
        (
            "deleteRecords",
            "getOffsets",
            "listSegments",
            "listProducers",
            "rollSegment",
            "flushLog",
        ),
        _LOG,
    ),
)
_FROM_A_GROUP_OFFSET: Final = (
    _Ways(("getGroupOffset",), _GROUP_OFFSET),
    _Ways(
        ("putGroupOffset", "deleteGroupOffset"),
        {**_GROUP_OFFSET, "header.if-match": "$response.header.ETag"},
    ),
    _Ways(("listGroupOffsets", "getGroupLag"), _GROUP),
)
_FROM_A_MOVE: Final = (_Ways(("getMove",), _LOG),)

_WAYS: Final[Mapping[tuple[str, str], tuple[_Ways, ...]]] = {
    ("putTopic", "200"): _FROM_A_TOPIC,
    ("putTopic", "201"): _FROM_A_TOPIC,
    ("appendRecords", "200"): _FROM_AN_APPEND,
    ("appendRecords", "201"): _FROM_AN_APPEND,
    ("appendBatches", "200"): _FROM_AN_APPEND,
    ("appendBatches", "201"): _FROM_AN_APPEND,
    ("readRecords", "200"): (
        _Ways(
            ("readRecords", "readBatches", "tailRecords"),
            {**_LOG, "query.offset": "$response.body#/next_offset"},
        ),
    ),
    ("getOffsets", "200"): (
        _Ways(("appendRecords",), {**_LOG, "header.if-match": "$response.header.ETag"}),
        _Ways(("truncateLog",), {**_LOG, "header.if-match": "$response.header.ETag"}),
    ),
    ("listSegments", "200"): (
        _Ways(
            ("downloadSegment",),
            {
                **_LOG,
                "path.base_offset": "$response.body#/segments/0/base_offset",
                "path.kind": "log",
            },
        ),
    ),
    ("putGroupOffset", "200"): _FROM_A_GROUP_OFFSET,
    ("putGroupOffset", "201"): _FROM_A_GROUP_OFFSET,
    ("movePartition", "200"): _FROM_A_MOVE,
    ("movePartition", "202"): _FROM_A_MOVE,
}


def add_links(made: Json) -> None:
    """Say in each answer that leads on to other requests which ones, and with what of it."""
    left = dict(_WAYS)
    for path in made["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                ways = left.pop((operation["operationId"], status), None)
                if ways is not None:
                    response["links"] = dict(_links(ways))
    assert not left, f"links for missing responses: {left.keys()}"


def _links(ways: tuple[_Ways, ...]) -> Mapping[str, Json]:
    links: dict[str, Json] = {}
    for one in ways:
        for operation_id in one.operations:
            link: Json = {"operationId": operation_id, "parameters": dict(one.parameters)}
            assert operation_id not in links, f"two links to {operation_id}"
            links[operation_id] = link
    return links
