"""OTLP over HTTP: export requests of OpenTelemetry are records, and answers are OTLP's."""

import base64
import gzip
from typing import Any

import httpx
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app.errors import CommitTimedOut, QuotaExceeded, RequestTimedOut
from app.http.problems import RETRY_AFTER
from app.operations.ingest.otlp import MAX_CHECKED_FIELDS, status_answer
from engine.errors import StorageFull, TooLarge
from tests.support.service import Api

pytestmark = pytest.mark.anyio

PATH = "/v1/topics/events/ingest/otlp/v1/"
PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}


def request_of(signal: str) -> Any:
    """An export request with one resource that has a name."""
    logs, traces, metrics = (
        ExportLogsServiceRequest(),
        ExportTraceServiceRequest(),
        ExportMetricsServiceRequest(),
    )
    parts: dict[str, Any] = {
        "logs": (logs, logs.resource_logs),
        "traces": (traces, traces.resource_spans),
        "metrics": (metrics, metrics.resource_metrics),
    }
    request, resources = parts[signal]
    resources.add().resource.attributes.add(key="service.name").value.string_value = "flights"
    return request


async def stored(api: Api) -> list[tuple[bytes, dict[str, str]]]:
    """Values and headers."""
    answer = await api.client.get("/v1/topics/events/partitions/0/records?encoding=base64")
    return [
        (
            base64.b64decode(record["value"]),
            {
                header["key"]: base64.b64decode(header["value"]).decode()
                for header in record["headers"]
            },
        )
        for record in answer.json()["records"]
    ]


@pytest.mark.parametrize("signal", ["logs", "traces", "metrics"])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_an_export_request_is_one_record(api: Api, signal: str, coding: str) -> None:
    """In protobuf, gzipped or not, as it was sent; the answer decodes to a success (N9)."""
    body = request_of(signal).SerializeToString()
    sent = gzip.compress(body) if coding == "gzip" else body
    headers = PROTOBUF | {"content-encoding": coding}
    answer = await api.client.post(PATH + signal, content=sent, headers=headers)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "application/x-protobuf"
    assert ExportLogsServiceResponse.FromString(answer.content) == ExportLogsServiceResponse()
    assert await stored(api) == [(body, PROTOBUF | {"otlp-signal": signal})]


async def test_of_a_long_request_the_first_fields_are_checked(api: Api) -> None:
    """What its later ones say is the reader's to find out."""
    body = b"\x0a\x00" * MAX_CHECKED_FIELDS + b"\xff"
    answer = await api.client.post(f"{PATH}logs", content=body, headers=PROTOBUF)
    assert answer.status_code == 200
    assert [one for one, _ in await stored(api)] == [body]


@pytest.mark.parametrize("path", [PATH, PATH.replace("otlp/", "otlp//")])
async def test_json_is_answered_in_json(api: Api, path: str) -> None:
    """The record has the bytes that were sent; a slash after the endpoint does not matter."""
    body = b'{"resourceLogs": [ {"scopeLogs":[]} ] }'
    answer = await api.client.post(f"{path}logs", content=body, headers=JSON)
    assert (answer.status_code, answer.json()) == (200, {})
    assert await stored(api) == [(body, JSON | {"otlp-signal": "logs"})]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (PROTOBUF, b""),
        (JSON, b"{}"),
        (JSON, b'{"resourceLogs":[]}'),
        (JSON, b'{"resourceLogs":null}'),
    ],
)
async def test_an_empty_request_is_a_success_and_no_record(
    api: Api, headers: dict[str, str], body: bytes
) -> None:
    """As OTLP asks for."""
    answer = await api.client.post(f"{PATH}logs", content=body, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, headers["content-type"])
    assert api.log().watermarks.log_end_offset == 0


@pytest.mark.parametrize(
    ("path", "headers", "body", "status", "code", "message"),
    [
        (f"{PATH}logs", PROTOBUF, b"\x0a\x05abc", 400, 3, "at byte 0"),
        (f"{PATH}logs", PROTOBUF, b"\x0a\x01a\x0b", 400, 3, "at byte 3"),
        (f"{PATH}logs", PROTOBUF, b"\x02\x00", 400, 3, "at byte 0"),
        (f"{PATH}logs", PROTOBUF, b"\x0d\0\0\0\0\x0d\0", 400, 3, "at byte 5"),
        (f"{PATH}logs", PROTOBUF, b"\xff" * 11, 400, 3, "at byte 0"),
        (f"{PATH}logs", JSON, b"[]", 400, 3, "resourceLogs"),
        (f"{PATH}logs", JSON, b"{", 400, 3, "not JSON"),
        (f"{PATH}metrics", JSON, b'{"resourceMetrics":{}}', 400, 3, "resourceMetrics"),
        (f"{PATH}logs", {"content-type": "text/plain"}, b"x", 415, 3, "application/x-protobuf"),
        (f"{PATH}logs", PROTOBUF | {"content-encoding": "br"}, b"x", 415, 3, "br"),
        (PATH.replace("events", "other") + "logs", PROTOBUF, b"", 404, 5, "does not exist"),
        (PATH.replace("events", "o" * 200) + "logs", PROTOBUF, b"", 404, 5, "does not exist"),
        (PATH.replace("events", "other") + "logs", JSON, b"{}", 404, 5, "does not exist"),
    ],
)
async def test_an_error_is_a_status_in_the_encoding_of_the_request(
    api: Api,
    path: str,
    headers: dict[str, str],
    body: bytes,
    status: int,
    code: int,
    message: str,
) -> None:
    """Exporters decode a google.rpc.Status; nothing was written."""
    answer = await api.client.post(path, content=body, headers=headers)
    assert answer.status_code == status, answer.text
    told = status_of(answer)
    assert told.code == code
    assert message in told.message
    assert api.log().watermarks.log_end_offset == 0


def status_of(answer: httpx.Response) -> Status:
    """The message of an error."""
    if answer.headers["content-type"] == "application/x-protobuf":
        return Status.FromString(answer.content)
    assert answer.headers["content-type"] == "application/json"
    return Status(**answer.json())


async def test_what_can_be_repeated_has_a_retryable_status(api: Api) -> None:
    """A body that came too late is 408 elsewhere, which exporters give up after."""
    for error, status in (
        (RequestTimedOut("late"), 503),
        (StorageFull("no space left"), 503),
        (CommitTimedOut("not confirmed"), 504),
        (QuotaExceeded("used up"), 429),
        (TooLarge("large", limit="a", limit_bytes=1, actual_bytes=2), 413),
    ):
        answer = status_answer(error, path=PATH, trace=None, head={})
        assert answer.status == status
        assert (RETRY_AFTER in answer.headers) == (status == 503)
