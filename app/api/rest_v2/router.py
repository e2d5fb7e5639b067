"""The paths of the proxies."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import WithJsonSchema

from app.api.rest_v2 import metadata
from app.api.rest_v2.media import ANSWERS, BINARY_V2, JSON_V2, NOT_FOUND, PARTITION_NOT_FOUND, V2
from app.api.rest_v2.records import produce, read_records
from app.api.routes.shared import IDENTIFIED, ExchangeDep, Responses, TopicPath
from app.codecs.calls import PARTITION as PARTITION_NUMBER
from app.codecs.receipts import to_json
from app.http.answers import NO_STORE, Answer, AnswerResponse
from app.store.port import Partition
from engine.errors import PartitionNotFound
from engine.types import INT32_MAX
from schemas.kafka_rest_v2 import KafkaRestReadParameters

router = APIRouter(
    tags=["kafka-rest-v2"], default_response_class=Response, dependencies=[IDENTIFIED]
)

_NUMBER: Final = re.compile(r"-?[0-9]+")

TOPIC: Final = "/topics/{topic}"
PARTITION: Final = "/topics/{topic}/partitions/{partition}"

INSTEAD: Final = (
    "consumer instances are not supported; read without one: "
    "GET /topics/{topic}/partitions/{partition}/records?offset=…&timeout=…&max_bytes=…, "
    "and keep the group's offsets with PUT /v1/groups/GROUP/offsets/{topic}/{partition}"
)

_EXAMPLES: Final = {
    400: (400, "query.offset: Field required"),
    401: (40101, "Unauthorized: this needs credentials: Authorization: Bearer <API key or token>"),
    403: (40301, "Forbidden: the credentials do not have the scope read:flights"),
    404: (40402, "Partition 9 not found: topic 'flights' has no partition 9"),
    406: (406, "HTTP 406 Not Acceptable: none of the accepted media types is available"),
    408: (408, "the body did not arrive within 30000 ms"),
    413: (
        413,
        "HTTP Request Entity Too Large: the body is larger than max_request_bytes (16777216)",
    ),
    415: (415, "HTTP 415 Unsupported Media Type: 'text/plain' is not accepted"),
    421: (421, "'log.example' is not a name of this service"),
    422: (422, "Invalid request format: records may not be empty"),
    429: (429, "the quota of 100 requests a second is used up"),
    500: (500, "Internal server error: an unexpected error was logged"),
    503: (503, "Service unavailable: the logs are being opened; /readyz shows the progress"),
    504: (504, "the disk has not confirmed flights-0 in time"),
    507: (507, "no space is left on the device"),
}


def _errors(*statuses: int) -> Responses:
    """Return documentation of errors, each with an example."""
    documented: Responses = {}
    for status in sorted({*statuses, 400, 401, 403, 406, 421, 429, 500, 503}):
        code, message = _EXAMPLES[status]
        examples = {str(code): {"value": {"error_code": code, "message": message}}}
        documented[status] = {
            "description": HTTPStatus(status).phrase,
            "content": {V2.decode(): {"schema": _ref("KafkaRestError"), "examples": examples}},
        }
    return documented


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _answers(
    description: str, schema: dict[str, Any], *media_types: bytes, example: object = None
) -> Responses:
    media = {"schema": schema} if example is None else {"schema": schema, "example": example}
    names = [media_type.decode() for media_type in media_types or ANSWERS]
    return {200: {"description": description, "content": dict.fromkeys(names, media)}}


_PRODUCED: Final = {
    **_answers("An offset or an error for each record", _ref("KafkaRestProduced")),
    204: {"description": "With async=true: in the log, but not yet on disk"},
    **_errors(404, 408, 413, 415, 422, 504, 507),
}

_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON_V2.decode(): {
                "schema": _ref("KafkaRestProduce"),
                "example": {"records": [{"key": "ada", "value": {"page": "/"}}]},
            },
            BINARY_V2.decode(): {
                "schema": _ref("KafkaRestProduce"),
                "example": {"records": [{"key": "YWRh", "value": "aGVsbG8="}]},
            },
        },
    }
}


async def _partition(
    exchange: ExchangeDep,
    topic: TopicPath,
    partition: Annotated[
        str,
        Path(description="Partition number; the first is 0"),
        WithJsonSchema({"type": "integer", "format": "int32", "minimum": 0}),
    ],
) -> Partition:
    """Return a partition; a word is not found either, with Karapace's code for words."""
    exchange.service.topic(topic)
    if PARTITION_NUMBER.fullmatch(partition) is None or int(partition) > INT32_MAX:
        is_number = _NUMBER.fullmatch(partition) is not None
        raise PartitionNotFound(
            f"topic {topic!r} has no partition {partition!r}",
            topic=topic,
            partition=partition,
            proxy_code=PARTITION_NOT_FOUND if is_number else NOT_FOUND,
        )
    return exchange.service.partition(topic, int(partition))


PartitionDep = Annotated[Partition, Depends(_partition)]
AsyncParameter = Annotated[
    bool,
    Query(
        alias="async",
        description="`true`: respond with 204 at once, as Strimzi does. Default `false`",
    ),
]


@router.get(
    "/brokers",
    operation_id="kafkaRestListBrokers",
    responses=_answers("Brokers", _ref("KafkaRestBrokers")) | _errors(),
)
async def list_brokers(exchange: ExchangeDep) -> AnswerResponse:
    """List the brokers: always one, number 0."""
    return AnswerResponse(metadata.list_brokers(exchange))


@router.get(
    "/topics",
    operation_id="kafkaRestListTopics",
    responses=_answers("Names", {"type": "array", "items": {"type": "string"}}, example=["flights"])
    | _errors(),
)
async def list_topics(exchange: ExchangeDep) -> AnswerResponse:
    """List the names of all topics."""
    return AnswerResponse(metadata.list_topics(exchange))


@router.get(
    TOPIC,
    operation_id="kafkaRestGetTopic",
    responses=_answers("The topic", _ref("KafkaRestTopic")) | _errors(404),
)
async def get_topic(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Describe a topic: its configuration and its partitions."""
    return AnswerResponse(metadata.get_topic(exchange, topic))


@router.post(
    TOPIC, operation_id="kafkaRestProduceToTopic", responses=_PRODUCED, openapi_extra=_BODY
)
async def produce_to_topic(
    exchange: ExchangeDep,
    topic: TopicPath,
    is_async: AsyncParameter = False,  # noqa: FBT002  # a query parameter, named by the client
) -> AnswerResponse:
    """Produce records to a topic, each to its partition or to the one of its key."""
    return AnswerResponse(await produce(exchange, topic, None, is_async=is_async))


@router.get(
    TOPIC + "/partitions",
    operation_id="kafkaRestListPartitions",
    responses=_answers("Partitions", {"type": "array", "items": _ref("KafkaRestPartition")})
    | _errors(404),
)
async def list_partitions(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """List the partitions of a topic."""
    return AnswerResponse(metadata.list_partitions(exchange, topic))


@router.get(
    PARTITION,
    operation_id="kafkaRestGetPartition",
    responses=_answers("The partition", _ref("KafkaRestPartition")) | _errors(404),
)
async def get_partition(exchange: ExchangeDep, partition: PartitionDep) -> AnswerResponse:
    """Describe a partition."""
    return AnswerResponse(metadata.get_partition(exchange, partition))


@router.post(
    PARTITION,
    operation_id="kafkaRestProduceToPartition",
    responses=_PRODUCED,
    openapi_extra=_BODY,
)
async def produce_to_partition(
    exchange: ExchangeDep,
    partition: PartitionDep,
    is_async: AsyncParameter = False,  # noqa: FBT002  # a query parameter, named by the client
) -> AnswerResponse:
    """Produce records to one partition."""
    answer = await produce(exchange, partition.topic, partition.number, is_async=is_async)
    return AnswerResponse(answer)


@router.get(
    PARTITION + "/offsets",
    operation_id="kafkaRestGetOffsets",
    responses=_answers("First and end offset", _ref("KafkaRestOffsets")) | _errors(404),
)
async def get_offsets(exchange: ExchangeDep, partition: PartitionDep) -> AnswerResponse:
    """Return the first and the end offset of a partition for readers."""
    return AnswerResponse(await metadata.get_offsets(exchange, partition))


@router.get(
    PARTITION + "/records",
    operation_id="kafkaRestReadRecords",
    responses=_answers(
        "Records; empty if none arrived in time",
        {"type": "array", "items": _ref("KafkaRestRecord")},
        BINARY_V2,
        JSON_V2,
    )
    | _errors(404, 413),
)
async def read_partition(
    exchange: ExchangeDep,
    partition: PartitionDep,
    parameters: Annotated[KafkaRestReadParameters, Query()],
) -> AnswerResponse:
    """Read records of a partition from an offset on."""
    return AnswerResponse(await read_records(exchange, partition, parameters))


@router.api_route(
    "/consumers/{path:path}",
    methods=["DELETE", "GET", "POST", "PUT"],
    operation_id="kafkaRestUseConsumer",
    include_in_schema=False,  # a client that is generated has no use for it
)
async def use_consumer(path: Annotated[str, Path()]) -> AnswerResponse:
    """Refuse whatever is asked of a group's consumers, and name what does without them."""
    message = INSTEAD.replace("GROUP", path.partition("/")[0])
    body = to_json({"error_code": 501, "message": message})
    return AnswerResponse(Answer(501, [(b"content-type", V2), NO_STORE], body))
