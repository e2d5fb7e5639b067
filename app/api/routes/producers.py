"""Producers: identities, what a log knows of them, the ends of their transactions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from app.api.routes.shared import (
    IDENTIFIED,
    ExchangeDep,
    LocalPartitionDep,
    PartitionDep,
    answers,
    body_of,
    problems,
    ref,
)
from app.http.answers import AnswerResponse
from app.operations import producers as operations
from app.operations.request_content import parse_model
from schemas.producers import (
    AppendOutcome,
    EndTransaction,
    OutcomeParameters,
    ProducerId,
    ProducerIdentity,
    ProducerList,
    ProducerParameters,
    Sequence,
    TransactionEnd,
)

router = APIRouter(prefix="/v1", tags=["producers"], dependencies=[IDENTIFIED])

PARTITION = "/topics/{topic}/partitions/{partition}"


@router.post(
    "/producers",
    operation_id="allocateProducer",
    status_code=201,
    responses={**answers(201, ProducerIdentity, "A new producer id"), **problems(507)},
)
async def allocate_producer(exchange: ExchangeDep) -> AnswerResponse:
    """Allocate a producer id and epoch for idempotent appends."""
    return AnswerResponse(await operations.allocate_producer(exchange.service))


@router.get(
    f"{PARTITION}/producers",
    operation_id="listProducers",
    responses={**answers(200, ProducerList, "One page of producers"), **problems(404)},
)
async def list_producers(
    partition: PartitionDep,
    parameters: Annotated[ProducerParameters, Query()],
) -> AnswerResponse:
    """List the producers of a log, by id."""
    answer = await operations.list_producers(
        partition,
        page_size=parameters.page_size,
        page_token=parameters.page_token,
    )
    return AnswerResponse(answer)


@router.get(
    f"{PARTITION}/producers/{{producer_id}}/appends/{{sequence}}",
    operation_id="getAppendOutcome",
    responses={**answers(200, AppendOutcome, "The outcome of the append"), **problems(404)},
)
async def get_append_outcome(
    partition: PartitionDep,
    producer_id: Annotated[ProducerId, Path()],
    sequence: Annotated[Sequence, Path()],
    parameters: Annotated[OutcomeParameters, Query()],
) -> AnswerResponse:
    """Return whether an append is in the log, by any of its sequences, if its response was lost."""
    answer = await operations.get_append_outcome(
        partition, producer_id, sequence, parameters.producer_epoch
    )
    return AnswerResponse(answer)


@router.post(
    f"{PARTITION}/transactions",
    operation_id="endTransaction",
    responses={
        **answers(200, TransactionEnd, "The marker is on disk"),
        **problems(403, 404, 408, 409, 413, 415, 422, 501, 504, 507),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(EndTransaction),
        example={"producer_id": 4000, "producer_epoch": 0, "action": "commit"},
    ),
)
async def end_transaction(exchange: ExchangeDep, partition: LocalPartitionDep) -> AnswerResponse:
    """Commit or abort a producer's open transaction on this partition."""
    wanted = parse_model(await exchange.control_body(), EndTransaction)
    return AnswerResponse(await operations.end_transaction(partition, wanted))
