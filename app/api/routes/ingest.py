"""Ingest: bodies as any HTTP client sends them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Request

from app.api.routes.shared import (
    IDEMPOTENCY_KEY,
    IDENTIFIED,
    ExchangeDep,
    TopicPath,
    answers,
    problems,
    ref,
)
from app.codecs.calls import IngestCall
from app.http.answers import AnswerResponse
from app.operations.ingest import ingest as operations
from app.operations.ingest import otlp
from schemas.produce import (
    IngestEndpoint,
    IngestParameters,
    IngestReceipt,
    OtlpResponse,
    OtlpSignal,
    OtlpStatus,
)

router = APIRouter(prefix="/v1/topics", tags=["produce"], dependencies=[IDENTIFIED])

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


@router.post(
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


@router.get(
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


@router.post(
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
