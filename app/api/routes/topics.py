"""Topics: create, list, describe, configure, delete; and their partitions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query

from app.api.routes.shared import (
    IDENTIFIED,
    ExchangeDep,
    PartitionDep,
    TopicPath,
    answers,
    body_of,
    problems,
    ref,
)
from app.http.answers import AnswerResponse
from app.operations import topic_restores
from app.operations import topics as operations
from app.operations.request_content import parse_model
from schemas.restores import RestoreTopic, TopicRestore
from schemas.topics import (
    ListParameters,
    Partition,
    PartitionList,
    PutTopic,
    Topic,
    TopicList,
    UpdateTopic,
)
from schemas.value_schemas import PutValueSchema, ValueSchema


async def _conditions(
    *,
    if_match: Annotated[
        str | None,
        Header(description="ETags: 412 unless the topic has one of them. Default: none"),
    ] = None,
    if_none_match: Annotated[
        str | None,
        Header(description="ETags, or `*`: 412 if the topic has one, or exists. Default: none"),
    ] = None,
) -> None:
    """Document the conditions of a change; the operation reads them itself."""


async def _known(
    if_none_match: Annotated[
        str | None, Header(description="ETag: 304 if the topic still has it. Default: none")
    ] = None,
) -> None:
    """Document the condition of a read; the operation reads it itself."""


router = APIRouter(prefix="/v1/topics", tags=["topics"], dependencies=[IDENTIFIED])


@router.get(
    "",
    operation_id="listTopics",
    responses={**answers(200, TopicList, "One page of topics"), **problems()},
)
async def list_topics(
    exchange: ExchangeDep, parameters: Annotated[ListParameters, Query()]
) -> AnswerResponse:
    """List topics by name; internal topics of a broker are not listed."""
    answer = await operations.list_topics(
        exchange,
        prefix=parameters.prefix,
        page_size=parameters.page_size,
        page_token=parameters.page_token,
    )
    return AnswerResponse(answer)


@router.put(
    "/{topic}",
    operation_id="putTopic",
    dependencies=[Depends(_conditions)],
    responses={
        **answers(201, Topic, "Created"),
        **answers(200, Topic, "The topic exists with this configuration"),
        **problems(408, 409, 412, 413, 415, 422, 507),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(PutTopic),
        example={"partitions": 4, "config": {"retention.ms": "-1"}},
    ),
)
async def put_topic(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Create a topic: 201 if created, 200 if the same topic exists, 409 if it differs."""
    wanted = parse_model(await exchange.control_body(), PutTopic)
    return AnswerResponse(await operations.put_topic(exchange, topic, wanted))


@router.get(
    "/{topic}",
    operation_id="getTopic",
    dependencies=[Depends(_known)],
    responses={
        **answers(200, Topic, "The topic, with its ETag"),
        304: {"description": "The topic still has the ETag of If-None-Match"},
        **problems(404),
    },
)
async def get_topic(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Describe a topic: id, partitions, and each configuration value with its source."""
    return AnswerResponse(await operations.get_topic(exchange, topic))


@router.patch(
    "/{topic}",
    operation_id="updateTopic",
    dependencies=[Depends(_conditions)],
    responses={
        **answers(200, Topic, "The updated topic"),
        **problems(404, 408, 409, 412, 413, 415, 422, 507),
    },
    openapi_extra=body_of(
        "application/merge-patch+json",
        "application/json",
        schema=ref(UpdateTopic),
        example={"config": {"retention.ms": None}},
    ),
)
async def update_topic(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Change the configuration with a merge patch, or add partitions; never removes partitions."""
    patch = parse_model(await exchange.control_body(), UpdateTopic)
    return AnswerResponse(await operations.update_topic(exchange, topic, patch))


@router.delete(
    "/{topic}",
    operation_id="deleteTopic",
    dependencies=[Depends(_conditions)],
    status_code=204,
    responses={204: {"description": "Deleted"}, **problems(404, 412, 422, 507)},
)
async def delete_topic(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Delete a topic. Requests fail with 404 at once; its files are removed after a delay."""
    return AnswerResponse(await operations.delete_topic(exchange, topic))


@router.get(
    "/{topic}/partitions",
    operation_id="listPartitions",
    responses={**answers(200, PartitionList, "All partitions"), **problems(404)},
)
async def list_partitions(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Describe all partitions: offsets, bytes, segments, epoch, producers."""
    return AnswerResponse(await operations.list_partitions(exchange.service, topic))


@router.get(
    "/{topic}/partitions/{partition}",
    operation_id="getPartition",
    responses={**answers(200, Partition, "The partition"), **problems(404)},
)
async def get_partition(partition: PartitionDep) -> AnswerResponse:
    """Describe one partition."""
    return AnswerResponse(await operations.get_partition(partition))


@router.post(
    "/{topic}/restore",
    operation_id="restoreTopic",
    status_code=202,
    responses={
        **answers(202, TopicRestore, "The restore is queued; `getTopicRestore` has its progress"),
        **problems(404, 408, 409, 413, 415, 422, 501, 507),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(RestoreTopic),
        example={"source": "clicks", "until": 1788000000123},
    ),
)
async def restore_topic(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Bring a topic back from the archive, as a new topic of this name.

    It has the records, offsets and leader epochs of the original at that time. Nothing of it is
    ever removed until its configuration says so: retention and compaction are off. It needs the
    scope `read` for the original, and appears once it is complete. A stop of the service ends it.
    """
    wanted = parse_model(await exchange.control_body(), RestoreTopic)
    return AnswerResponse(await topic_restores.restore_topic(exchange, topic, wanted))


@router.get(
    "/{topic}/restore",
    operation_id="getTopicRestore",
    responses={
        **answers(200, TopicRestore, "The progress of the restore, or its end"),
        **problems(404, 422, 501),
    },
)
async def get_topic_restore(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Return the progress of a restore that was requested since the start."""
    return AnswerResponse(topic_restores.get_topic_restore(exchange, topic))


@router.get(
    "/{topic}/value-schema",
    operation_id="getValueSchema",
    responses={**answers(200, ValueSchema, "The schema"), **problems(404)},
)
async def get_value_schema(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Return how the values of a topic are decoded by clients that show them."""
    return AnswerResponse(operations.get_value_schema(exchange, topic))


@router.put(
    "/{topic}/value-schema",
    operation_id="putValueSchema",
    responses={
        **answers(200, ValueSchema, "Replaced, and on disk"),
        **answers(201, ValueSchema, "Stored for the first time, and on disk"),
        **problems(404, 408, 413, 415, 422, 507),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(PutValueSchema),
        example={
            "format": "avro",
            "definition": '{"type": "record", "name": "Order", "fields": '
            '[{"name": "id", "type": "long"}]}',
        },
    ),
)
async def put_value_schema(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Set how the values of a topic are decoded; appends and reads do not use it."""
    wanted = parse_model(await exchange.control_body(), PutValueSchema)
    return AnswerResponse(await operations.put_value_schema(exchange, topic, wanted))


@router.delete(
    "/{topic}/value-schema",
    operation_id="deleteValueSchema",
    status_code=204,
    responses={204: {"description": "Deleted durably"}, **problems(404, 507)},
)
async def delete_value_schema(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Delete the schema of a topic's values; clients show bytes again."""
    return AnswerResponse(await operations.delete_value_schema(exchange, topic))
