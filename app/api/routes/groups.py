"""Groups: where readers are, kept for them in the log itself."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query

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
from app.operations import group_lag
from app.operations import groups as operations
from app.operations.leases import operations as leases
from app.operations.request_content import parse_model
from app.store.port import CursorKey
from schemas.common import Offset, PageParameters, PartitionNumber
from schemas.groups import (
    GroupLag,
    GroupLagList,
    GroupList,
    GroupName,
    GroupOffset,
    GroupOffsetList,
    LagListParameters,
    LagParameters,
    PutGroupOffset,
)
from schemas.leases import Lease, LeaseList, RenewLease, WorkerName

router = APIRouter(prefix="/v1/groups", tags=["groups"], dependencies=[IDENTIFIED])

lags_router = APIRouter(prefix="/v1", tags=["groups"], dependencies=[IDENTIFIED])

OFFSET = "/{group}/offsets/{topic}/{partition}"


async def _group(group: Annotated[GroupName, Path()]) -> str:
    return operations.group_of(group)


GroupDep = Annotated[str, Depends(_group)]


async def _key(
    group: GroupDep, topic: TopicPath, partition: Annotated[PartitionNumber, Path()]
) -> CursorKey:
    return CursorKey(group, topic, partition)


KeyDep = Annotated[CursorKey, Depends(_key)]


async def _conditions(
    *,
    if_match: Annotated[
        str | None,
        Header(description="ETags: 412 unless the stored offset has one of them. Default: none"),
    ] = None,
    if_none_match: Annotated[
        str | None, Header(description="`*`: 412 if there is a stored offset. Default: none")
    ] = None,
) -> None:
    """Document the conditions of a change; the operation reads them itself."""


async def _fence(
    *,
    lease_fence: Annotated[
        Offset | None,
        Header(
            description="`fence` of the lease: 409 `lease_lost` once the partition was given to "
            "another worker. Default: none, the commit does not depend on a lease",
        ),
    ] = None,
) -> int | None:
    return lease_fence


async def _known(
    if_none_match: Annotated[
        str | None, Header(description="ETag: 304 if the stored offset still has it. Default: none")
    ] = None,
) -> None:
    """Document the condition of a read; the operation reads it itself."""


@router.get(
    "",
    operation_id="listGroups",
    responses=answers(200, GroupList, "One page of groups") | problems(),
)
async def list_groups(
    exchange: ExchangeDep, parameters: Annotated[PageParameters, Query()]
) -> AnswerResponse:
    """List the groups that have stored an offset, by name."""
    answer = await operations.list_groups(
        exchange, page_size=parameters.page_size, page_token=parameters.page_token
    )
    return AnswerResponse(answer)


@router.get(
    "/{group}/offsets",
    operation_id="listGroupOffsets",
    responses=answers(200, GroupOffsetList, "One page of stored offsets") | problems(404),
)
async def list_group_offsets(
    exchange: ExchangeDep, group: GroupDep, parameters: Annotated[PageParameters, Query()]
) -> AnswerResponse:
    """List the offsets that a group has stored, by topic and partition."""
    answer = await operations.list_group_offsets(
        exchange,
        group,
        page_size=parameters.page_size,
        page_token=parameters.page_token,
    )
    return AnswerResponse(answer)


@router.get(
    OFFSET,
    operation_id="getGroupOffset",
    dependencies=[Depends(_known)],
    responses={
        **answers(200, GroupOffset, "The stored offset, with its ETag"),
        304: {"description": "The stored offset still has the ETag of If-None-Match"},
        **problems(404),
    },
)
async def get_group_offset(exchange: ExchangeDep, key: KeyDep) -> AnswerResponse:
    """Return the offset that a group has stored for a partition."""
    return AnswerResponse(await operations.get_group_offset(exchange, key))


@router.put(
    OFFSET,
    operation_id="putGroupOffset",
    dependencies=[Depends(_conditions)],
    responses={
        **answers(200, GroupOffset, "Replaced, and on disk"),
        **answers(201, GroupOffset, "Stored for the first time, and on disk"),
        **problems(404, 408, 409, 412, 413, 415, 416, 422, 501, 504, 507),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(PutGroupOffset),
        example={"offset": 42, "leader_epoch": 0, "metadata": "run 17"},
    ),
)
async def put_group_offset(
    exchange: ExchangeDep, key: KeyDep, fence: Annotated[int | None, Depends(_fence)]
) -> AnswerResponse:
    """Store a group's next offset for a partition."""
    wanted = parse_model(await exchange.control_body(), PutGroupOffset)
    return AnswerResponse(await operations.put_group_offset(exchange, key, wanted, fence))


@router.delete(
    OFFSET,
    operation_id="deleteGroupOffset",
    dependencies=[Depends(_conditions)],
    status_code=204,
    responses={
        204: {"description": "Deleted durably"},
        **problems(404, 412, 501, 504, 507),
    },
)
async def delete_group_offset(exchange: ExchangeDep, key: KeyDep) -> AnswerResponse:
    """Delete the offset that a group has stored for a partition."""
    return AnswerResponse(await operations.delete_group_offset(exchange, key))


@router.get(
    "/{group}/lag",
    operation_id="getGroupLag",
    responses=answers(200, GroupLag, "The lag of each partition") | problems(404),
)
async def get_group_lag(
    exchange: ExchangeDep, group: GroupDep, parameters: Annotated[LagParameters, Query()]
) -> AnswerResponse:
    """Report a group's lag in every partition for which it has stored an offset."""
    answer = await group_lag.get_group_lag(exchange, group, parameters.isolation)
    return AnswerResponse(answer)


LEASES = "/{group}/leases"


@router.post(
    LEASES,
    operation_id="renewLease",
    responses={
        **answers(200, Lease, "What the worker has now, on disk"),
        **problems(404, 408, 409, 413, 415, 422, 504, 507),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(RenewLease),
        example={"worker": "w-17", "topics": ["flights"], "ttl_ms": 30_000},
    ),
)
async def renew_lease(exchange: ExchangeDep, group: GroupDep) -> AnswerResponse:
    """Join a group of workers or go on in it, and learn which partitions to read."""
    wanted = parse_model(await exchange.control_body(), RenewLease)
    return AnswerResponse(await leases.renew_lease(exchange, group, wanted))


@lags_router.get(
    "/group-lags",
    operation_id="listGroupLags",
    responses=answers(200, GroupLagList, "The groups that are most behind") | problems(404),
)
async def list_group_lags(
    exchange: ExchangeDep, parameters: Annotated[LagListParameters, Query()]
) -> AnswerResponse:
    """List the groups by their lag, the greatest first: who is behind, in offsets and in time."""
    return AnswerResponse(
        await group_lag.list_group_lags(
            exchange,
            topic=parameters.topic,
            search=parameters.search,
            isolation=parameters.isolation,
            limit=parameters.limit,
        )
    )


@router.get(
    LEASES,
    operation_id="listLeases",
    responses=answers(200, LeaseList, "One page of the group's workers") | problems(),
)
async def list_leases(
    exchange: ExchangeDep, group: GroupDep, parameters: Annotated[PageParameters, Query()]
) -> AnswerResponse:
    """List the workers of a group, and which partitions each of them holds."""
    answer = await leases.list_leases(
        exchange, group, page_size=parameters.page_size, page_token=parameters.page_token
    )
    return AnswerResponse(answer)


@router.delete(
    LEASES + "/{worker}",
    operation_id="releaseLease",
    status_code=204,
    responses={
        204: {"description": "The worker has left, durably, or was not there"},
        **problems(504, 507),
    },
)
async def release_lease(
    exchange: ExchangeDep, group: GroupDep, worker: Annotated[WorkerName, Path()]
) -> AnswerResponse:
    """Leave a group: its partitions can be given to other workers at once."""
    name = operations.group_of(worker)
    return AnswerResponse(await leases.release_lease(exchange, group, name))
