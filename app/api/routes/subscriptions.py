"""Subscriptions: topics that are pushed to a URL."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from app.api.routes.shared import IDENTIFIED, ExchangeDep, answers, body_of, problems, ref
from app.http.answers import AnswerResponse
from app.operations.request_content import parse_model
from app.operations.subscriptions import administration as operations
from schemas.common import PageParameters
from schemas.subscriptions import (
    PatchSubscription,
    PutSubscription,
    Subscription,
    SubscriptionList,
    SubscriptionName,
    SubscriptionTest,
)

router = APIRouter(prefix="/v1/subscriptions", tags=["consume"], dependencies=[IDENTIFIED])

NamePath = Annotated[SubscriptionName, Path()]


@router.get(
    "",
    operation_id="listSubscriptions",
    responses=answers(200, SubscriptionList, "One page of subscriptions") | problems(),
)
async def list_subscriptions(
    exchange: ExchangeDep, parameters: Annotated[PageParameters, Query()]
) -> AnswerResponse:
    """List the subscriptions by name, and how they are going."""
    answer = await operations.list_subscriptions(
        exchange, page_size=parameters.page_size, page_token=parameters.page_token
    )
    return AnswerResponse(answer)


@router.get(
    "/{name}",
    operation_id="getSubscription",
    responses=answers(200, Subscription, "The subscription, without its secrets") | problems(404),
)
async def get_subscription(exchange: ExchangeDep, name: NamePath) -> AnswerResponse:
    """Describe a subscription, and how it is going."""
    return AnswerResponse(await operations.get_subscription(exchange, name))


@router.put(
    "/{name}",
    operation_id="putSubscription",
    responses={
        **answers(201, Subscription, "Set, and on disk"),
        **answers(200, Subscription, "Replaced, and on disk"),
        **problems(404, 408, 413, 415, 422, 504, 507),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(PutSubscription),
        example={"topics": ["flights"], "url": "https://example.org/hook", "start": "earliest"},
    ),
)
async def put_subscription(exchange: ExchangeDep, name: NamePath) -> AnswerResponse:
    """Push topics to a URL from now on, each record at least once and in its partition's order."""
    wanted = parse_model(await exchange.control_body(), PutSubscription)
    return AnswerResponse(await operations.put_subscription(exchange, name, wanted))


@router.patch(
    "/{name}",
    operation_id="updateSubscription",
    responses={
        **answers(200, Subscription, "Changed, and on disk"),
        **problems(404, 408, 413, 415, 422, 504, 507),
    },
    openapi_extra=body_of(
        "application/json", schema=ref(PatchSubscription), example={"paused": True}
    ),
)
async def update_subscription(exchange: ExchangeDep, name: NamePath) -> AnswerResponse:
    """Pause a subscription, or start it again; its secrets and headers need not be sent."""
    wanted = parse_model(await exchange.control_body(), PatchSubscription)
    return AnswerResponse(await operations.update_subscription(exchange, name, wanted))


@router.delete(
    "/{name}",
    operation_id="deleteSubscription",
    status_code=204,
    responses={204: {"description": "Deleted durably"}, **problems(404, 504, 507)},
)
async def delete_subscription(exchange: ExchangeDep, name: NamePath) -> AnswerResponse:
    """Delete a subscription with its secrets; the offsets of its group stay."""
    return AnswerResponse(await operations.delete_subscription(exchange, name))


@router.post(
    "/{name}/test",
    operation_id="testSubscription",
    responses=answers(200, SubscriptionTest, "What came of it") | problems(404),
)
async def test_subscription(exchange: ExchangeDep, name: NamePath) -> AnswerResponse:
    """Send one request with a record that no log has; nothing is committed."""
    return AnswerResponse(await operations.test_subscription(exchange, name))
