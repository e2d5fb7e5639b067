"""Deliveries from senders that do not know tidelog, and the profiles that adapt topics to them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from app.api.routes.shared import (
    EVERYWHERE,
    IDEMPOTENCY_KEY,
    IDENTIFIED,
    ExchangeDep,
    Responses,
    TopicPath,
    answers,
    body_of,
    problems,
    ref,
)
from app.codecs.calls import IngestCall
from app.http.answers import AnswerResponse
from app.operations.ingest import administration, handshakes, hec, otlp
from app.operations.ingest import ingest as operations
from app.operations.request_content import parse_model
from schemas.ingest import (
    CreatedIngestToken,
    IngestProfile,
    IngestRefusalList,
    IngestTokenId,
    IngestTokenList,
    PutIngestProfile,
)
from schemas.produce import (
    HecForm,
    HecResult,
    IngestEndpoint,
    IngestParameters,
    IngestReceipt,
    OtlpResponse,
    OtlpSignal,
    OtlpStatus,
)

ingest_router = APIRouter(prefix="/v1/topics", tags=["produce"], dependencies=[IDENTIFIED])

_TEXT: Final = {"type": "string"}
_EVENT: Final = {
    "specversion": "1.0",
    "id": "A234-1234-1234",
    "source": "/flights",
    "type": "flight.landed",
    "data": {"flight": 1141},
}
_BODIES: Final[dict[str, Any]] = {
    "application/json": {
        "schema": {"description": "Any JSON value; with split=array an array"},
        "example": {"flight": 1141, "arr_delay": 33},
    },
    "application/x-ndjson": {
        "schema": {**_TEXT, "description": "One JSON value per line"},
        "example": '{"flight":1141}\n{"flight":1714}\n',
    },
    "application/cloudevents+json": {
        "schema": {"type": "object", "description": "A CloudEvent"},
        "example": _EVENT,
    },
    "application/cloudevents-batch+json": {
        "schema": {"type": "array", "items": {"type": "object"}, "description": "CloudEvents"},
        "example": [_EVENT],
    },
    "text/plain": {
        "schema": {**_TEXT, "description": "With split=lines one record per line"},
        "example": "flight 1141 landed\nflight 1714 landed\n",
    },
    "application/octet-stream": {"schema": {**_TEXT, "format": "binary"}},
}


async def _headers(
    *,
    content_digest: Annotated[
        str | None,
        Header(
            description="Digest of the body as sent (RFC 9530); 422 if it differs. Default: none"
        ),
    ] = None,
    idempotency_key: Annotated[str | None, Header(description=IDEMPOTENCY_KEY)] = None,
) -> None:
    """Document the headers of ingest; the operation reads them itself."""


INGEST_HEADERS: Final = Depends(_headers)
INGEST_RESPONSES: Final = {
    **answers(
        200,
        IngestReceipt,
        "The records are on disk. The exception is a sender's handshake, of which nothing is "
        "stored: with the scheme `slack` a signed `url_verification` is answered with the JSON "
        'object `{"challenge": "…"}` that Slack asks for, and with it alone. The profile\'s '
        "`handshake` has others; with `firehose` every answer is what Amazon Data Firehose expects",
    ),
    **problems(404, 408, 409, 413, 415, 422, 504, 507),
}
INGEST_BODY: Final = {"requestBody": {"required": True, "content": _BODIES}}
PROBE_RESPONSES: Final = {
    **answers(200, IngestEndpoint, "The topic accepts requests"),
    **problems(404),
}


@ingest_router.post(
    "/{topic}/ingest",
    operation_id="ingest",
    dependencies=[INGEST_HEADERS],
    responses=INGEST_RESPONSES,
    openapi_extra=INGEST_BODY,
)
async def ingest(
    exchange: ExchangeDep,
    request: Request,
    topic: TopicPath,
    parameters: Annotated[IngestParameters, Query()],
) -> AnswerResponse:
    """Append a body as it is: one record, or one per element, line or event.

    `Content-Type`, `split` and the topic's ingest profile determine how it is divided. With another
    media type, or none, the body is one record.
    """
    call, query = IngestCall(parameters.split), request.scope["query_string"]
    return AnswerResponse(await operations.ingest(exchange, topic, call, query))


@ingest_router.get(
    "/{topic}/ingest",
    operation_id="checkIngest",
    responses=PROBE_RESPONSES,
)
async def check_ingest(exchange: ExchangeDep, request: Request, topic: TopicPath) -> AnswerResponse:
    """Respond to the health check of a sender, which is a GET or a HEAD.

    With a `handshake` in the topic's profile, the answer is what that sender asks for.
    """
    return AnswerResponse(operations.probe(exchange, topic, request.scope["query_string"]))


_OTLP_BYTES: Final = {"type": "string", "format": "binary"}
_OTLP_BODIES: Final[dict[str, Any]] = {
    "application/json": {
        "schema": {"type": "object", "description": "An export request in OTLP's JSON"},
        "example": {
            "resourceLogs": [
                {"scopeLogs": [{"logRecords": [{"body": {"stringValue": "flight 1141 landed"}}]}]}
            ]
        },
    },
    "application/x-protobuf": {"schema": _OTLP_BYTES},
}
_OTLP_ERRORS: Final = (400, 401, 403, 404, 413, 415, 421, 422, 429, 500, 503, 504)


def _otlp_error(status: int) -> dict[str, Any]:
    example = {"code": otlp.rpc_code(status), "message": HTTPStatus(status).phrase}
    return {
        "description": "A `google.rpc.Status` in the encoding of the request",
        "content": {
            "application/x-protobuf": {"schema": _OTLP_BYTES},
            "application/json": {"schema": ref(OtlpStatus), "example": example},
        },
    }


@ingest_router.post(
    "/{topic}/ingest/otlp/v1/{signal}",
    operation_id="ingestOtlp",
    dependencies=[Depends(_headers)],
    responses={
        200: {
            "description": "An empty response message: everything is on disk",
            "content": {
                "application/x-protobuf": {"schema": _OTLP_BYTES},
                "application/json": {"schema": ref(OtlpResponse)},
            },
        },
        **{status: _otlp_error(status) for status in _OTLP_ERRORS},
    },
    openapi_extra={"requestBody": {"required": True, "content": _OTLP_BODIES}},
)
async def ingest_otlp(
    exchange: ExchangeDep,
    topic: TopicPath,
    signal: Annotated[OtlpSignal, Path(description="What is exported.")],
) -> AnswerResponse:
    """Append one export request of OpenTelemetry; an exporter's endpoint is `…/ingest/otlp`.

    The record has the request as it was sent, and its signal in the header `otlp-signal`.
    """
    return AnswerResponse(await otlp.ingest_otlp(exchange, topic, signal))


ingest_hec_router = APIRouter(prefix=hec.PATH, tags=["produce"], dependencies=[IDENTIFIED])

FormPath = Annotated[HecForm, Path(description="`event`: JSON objects; `raw`: lines of text.")]
_EVENTS: Final = '{"event":"flight 1141 landed"}{"event":{"flight":1714},"host":"ewr-1"}'
_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {"type": "string", "description": "Events, one after the other; or lines"},
            "example": _EVENTS,
        }
    },
}


def _error(status: int) -> dict[str, Any]:
    phrase = HTTPStatus(status).phrase
    example = {"text": phrase, "code": hec.code_of(status)}
    content = {"application/json": {"schema": ref(HecResult), "example": example}}
    return {"description": phrase, "content": content}


def _errors(*statuses: int) -> Responses:
    return {status: _error(status) for status in sorted({*EVERYWHERE, *statuses})}


@ingest_hec_router.post(
    "/{form}",
    operation_id="ingestHec",
    responses={
        **answers(200, HecResult, "The records are on disk"),
        **_errors(404, 408, 413, 415, 504, 507),
    },
    openapi_extra={"requestBody": _BODY},
)
async def ingest_hec(exchange: ExchangeDep, request: Request, form: FormPath) -> AnswerResponse:
    """Append what a sender of Splunk's HTTP Event Collector sends.

    Its token is an ingest token, which names the topic: `Authorization: Splunk tli_…`. With
    `event`, each JSON object is a record as it was sent; with `raw`, each line.
    """
    query: bytes = request.scope["query_string"]
    topic: str = request.path_params["topic"]
    return AnswerResponse(await hec.ingest_hec(exchange, topic, form, query))


@ingest_hec_router.get(
    "/health",
    operation_id="checkHec",
    responses={
        **answers(200, HecResult, "The token's topic accepts requests"),
        **_errors(),
    },
)
async def check_hec(exchange: ExchangeDep, request: Request) -> AnswerResponse:
    """Answer the health check of a sender of Splunk's HTTP Event Collector."""
    exchange.service.topic(request.path_params["topic"])
    return AnswerResponse(hec.healthy())


@ingest_hec_router.options(
    "/{form}",
    operation_id="allowHec",
    responses={
        **answers(200, HecResult, "The token is valid"),
        **_errors(),
    },
)
async def allow_hec(exchange: ExchangeDep, request: Request, form: FormPath) -> AnswerResponse:  # noqa: ARG001  # of the path
    """Answer what Docker's logging driver asks when a container starts."""
    exchange.service.topic(request.path_params["topic"])
    return AnswerResponse(hec.success())


ingest_profiles_router = APIRouter(prefix="/v1/topics", tags=["produce"], dependencies=[IDENTIFIED])

PROFILE = "/{topic}/ingest-profile"
TOKENS = "/{topic}/ingest-tokens"


async def _conditions(
    *,
    if_match: Annotated[
        str | None,
        Header(description="ETags: 412 unless the profile has one of them. Default: none"),
    ] = None,
    if_none_match: Annotated[
        str | None,
        Header(description="ETags, or `*`: 412 if the profile has one, or exists. Default: none"),
    ] = None,
) -> None:
    """Document the conditions of a change; the operation reads them itself."""


async def _known(
    if_none_match: Annotated[
        str | None, Header(description="ETag: 304 if the profile still has it. Default: none")
    ] = None,
) -> None:
    """Document the condition of a read; the operation reads it itself."""


@ingest_profiles_router.get(
    PROFILE,
    operation_id="getIngestProfile",
    dependencies=[Depends(_known)],
    responses={
        **answers(200, IngestProfile, "The profile, with its ETag"),
        304: {"description": "The profile still has the ETag of If-None-Match"},
        **problems(404),
    },
)
async def get_ingest_profile(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Return how a topic's deliveries are parsed and verified, without the secrets."""
    return AnswerResponse(administration.get_profile(exchange, topic))


@ingest_profiles_router.put(
    PROFILE,
    operation_id="putIngestProfile",
    dependencies=[Depends(_conditions)],
    responses={
        **answers(200, IngestProfile, "Replaced, and on disk"),
        **answers(201, IngestProfile, "Stored for the first time, and on disk"),
        **problems(404, 408, 412, 413, 415, 422, 507),
    },
    openapi_extra=body_of(
        "application/json",
        schema=ref(PutIngestProfile),
        example={
            "key": {"pointer": "/repository/full_name"},
            "signature": {"scheme": "github", "secrets": ["a long random text"]},
        },
    ),
)
async def put_ingest_profile(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Replace how a topic's deliveries are parsed and verified; secrets not sent are kept."""
    wanted = parse_model(await exchange.control_body(), PutIngestProfile)
    return AnswerResponse(await administration.put_profile(exchange, topic, wanted))


@ingest_profiles_router.delete(
    PROFILE,
    operation_id="deleteIngestProfile",
    dependencies=[Depends(_conditions)],
    status_code=204,
    responses={204: {"description": "Deleted durably"}, **problems(404, 412, 507)},
)
async def delete_ingest_profile(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Delete a topic's ingest profile with its secrets."""
    return AnswerResponse(await administration.delete_profile(exchange, topic))


@ingest_profiles_router.post(
    TOKENS,
    operation_id="createIngestToken",
    status_code=201,
    responses={
        **answers(201, CreatedIngestToken, "The token; it is not returned again"),
        **problems(404, 422, 507),
    },
)
async def create_ingest_token(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Create a token for appends to one topic, for senders that can only be given a URL."""
    return AnswerResponse(await administration.create_token(exchange, topic))


@ingest_profiles_router.get(
    TOKENS,
    operation_id="listIngestTokens",
    responses={**answers(200, IngestTokenList, "All tokens of the topic"), **problems(404)},
)
async def list_ingest_tokens(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """List the ids of a topic's ingest tokens, the oldest first."""
    return AnswerResponse(administration.list_tokens(exchange, topic))


@ingest_profiles_router.get(
    "/{topic}/ingest-refusals",
    operation_id="listIngestRefusals",
    responses={**answers(200, IngestRefusalList, "The newest first"), **problems(404)},
)
async def list_ingest_refusals(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """List the last requests to a topic's ingest URLs that were refused: when, and why."""
    return AnswerResponse(administration.list_refusals(exchange, topic))


@ingest_profiles_router.delete(
    TOKENS + "/{id}",
    operation_id="deleteIngestToken",
    status_code=204,
    responses={204: {"description": "Revoked durably"}, **problems(404, 507)},
)
async def delete_ingest_token(
    exchange: ExchangeDep,
    topic: TopicPath,
    token_id: Annotated[IngestTokenId, Path(alias="id")],
) -> AnswerResponse:
    """Revoke an ingest token; requests with it are refused from then on."""
    return AnswerResponse(await administration.delete_token(exchange, topic, token_id))


URL = "/{topic}/ingest/{token}"

# The path that a route sees has no token: `app.http.request_checks`.
TokenPath = Annotated[str, Path(description="An ingest token of the topic, from createIngestToken")]


async def _asked(
    webhook_request_origin: Annotated[
        str | None, Header(description="Host of the system that will send. Default: none")
    ] = None,
) -> None:
    """Document the header of a request for permission; the operation reads it itself."""


@ingest_router.post(
    URL,
    operation_id="ingestWithToken",
    dependencies=[INGEST_HEADERS],
    responses=INGEST_RESPONSES,
    openapi_extra=INGEST_BODY,
)
async def ingest_with_token(
    exchange: ExchangeDep,
    request: Request,
    topic: TopicPath,
    token: TokenPath,  # noqa: ARG001  # judged before the request is let in
    parameters: Annotated[IngestParameters, Query()],
) -> AnswerResponse:
    """Append a body as `ingest` does, for a sender that can only be given a URL."""
    call, query = IngestCall(parameters.split), request.scope["query_string"]
    return AnswerResponse(await operations.ingest(exchange, topic, call, query))


@ingest_router.get(URL, operation_id="checkIngestWithToken", responses=PROBE_RESPONSES)
async def check_ingest_with_token(
    exchange: ExchangeDep,
    request: Request,
    topic: TopicPath,
    token: TokenPath,  # noqa: ARG001  # as above
) -> AnswerResponse:
    """Answer the health check of a sender: 401 if its token is not valid."""
    return AnswerResponse(operations.probe(exchange, topic, request.scope["query_string"]))


@ingest_router.options(
    "/{topic}/ingest",
    operation_id="allowIngest",
    dependencies=[Depends(_asked)],
    response_class=Response,
    responses={200: {"description": "The sender may send"}, **problems(404)},
)
async def allow_ingest(exchange: ExchangeDep, topic: TopicPath) -> AnswerResponse:
    """Give a sender of CloudEvents the permission that it asks for before it sends."""
    return AnswerResponse(handshakes.permission(topic, exchange.head, exchange.service.settings))


@ingest_router.options(
    URL,
    operation_id="allowIngestWithToken",
    dependencies=[Depends(_asked)],
    response_class=Response,
    responses={200: {"description": "The sender may send"}, **problems(404)},
)
async def allow_ingest_with_token(
    exchange: ExchangeDep,
    topic: TopicPath,
    token: TokenPath,  # noqa: ARG001  # as above
) -> AnswerResponse:
    """Give the same permission for the URL with a token."""
    return AnswerResponse(handshakes.permission(topic, exchange.head, exchange.service.settings))
