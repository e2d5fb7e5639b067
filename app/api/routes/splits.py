"""Split plans for parallel readers."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.routes.shared import (
    IDENTIFIED,
    ExchangeDep,
    TopicPath,
    answers,
    body_of,
    problems,
    ref,
)
from app.http.answers import AnswerResponse
from app.operations.read import splits as operations
from app.operations.request_content import parse_model
from schemas.splits import SplitPlan, SplitRequest

router = APIRouter(prefix="/v1/topics/{topic}", tags=["offsets"], dependencies=[IDENTIFIED])


@router.post(
    "/splits",
    operation_id="planSplits",
    responses={
        **answers(200, SplitPlan, "The plan; the service does not store it"),
        **problems(404, 408, 410, 413, 415, 416, 422),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(SplitRequest),
        example={"start": {"0": 0, "1": "earliest"}, "end": "latest", "min_splits": 8},
    ),
)
async def plan_splits(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Divide a range of a topic into splits of about equal size, for parallel readers."""
    wanted = parse_model(await exchange.control_body(), SplitRequest)
    return AnswerResponse(await operations.plan_splits(exchange, topic, wanted))
