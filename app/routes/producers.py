"""Producer ids."""

from __future__ import annotations

from fastapi import APIRouter

from app.answers import AnswerResponse
from app.operations import maintenance as operations
from app.routes.shared import ExchangeDep, answers, problems
from schemas.producers import ProducerIdentity

router = APIRouter(prefix="/v1/producers", tags=["producers"])


@router.post(
    "",
    operation_id="allocateProducer",
    responses={**answers(201, ProducerIdentity, "An identity nobody has used"), **problems(507)},
)
async def allocate_producer(exchange: ExchangeDep) -> AnswerResponse:
    """Allocate a producer id and epoch for idempotent appends."""
    return AnswerResponse(await operations.allocate_producer(exchange.service))
