"""The records of requests: access lines and spans, from both ways in: protocol rule E8."""

import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from app.telemetry import tracing
from app.telemetry.tracing import Tracing
from engine.errors import InvalidConfig
from tests.support.server import serving
from tests.support.service import RECORDS, open_service, running
from tests.support.wired_client import wired

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.anyio
async def test_an_access_line_tells_who_did_what_to_which_partition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Operation, topic, partition, bytes, principal and trace are members of the line."""
    caplog.set_level("INFO", logger="tidelog.access")
    async with running(tmp_path, access_log=True) as api:
        await api.create()
        answer = await api.client.get(RECORDS, headers={"traceparent": PARENT})
    line = vars(caplog.records[-1])
    expected = {
        "operation": "readRecords",
        "topic": "events",
        "partition": "0",
        "sent_bytes": len(answer.content),
        "principal": "anonymous",
        "trace_id": TRACE,
    }
    assert {name: line[name] for name in expected} == expected
    assert line["duration_ms"] > 0
    created = vars(caplog.records[0])
    assert (created["operation"], created["topic"], created["partition"]) == (
        "putTopic",
        "events",
        None,
    )
    assert int(created["received_bytes"]) > 0
    assert created["trace_id"] is None


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.mark.anyio
async def test_a_request_is_a_span_of_its_clients_trace(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    """Named by its operation, below the client's span, as long as the request took."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    async with running(tmp_path) as api:
        await api.create()
        api.service.journal.observe(Tracing(provider).record)
        await api.client.get(RECORDS, headers={"traceparent": PARENT})
        await api.client.get("/v1/topics")
    read, listed = spans.get_finished_spans()
    assert (read.name, listed.name) == ("readRecords", "listTopics")
    assert read.parent is not None
    assert f"{read.parent.trace_id:032x}" == TRACE
    assert listed.parent is None
    assert read.attributes is not None
    assert read.attributes["messaging.destination.name"] == "events"
    assert read.attributes["messaging.destination.partition.id"] == "0"
    assert read.attributes["http.response.status_code"] == 200
    assert read.start_time is not None
    assert read.end_time is not None
    assert read.start_time < read.end_time
    assert listed.attributes is not None
    assert "messaging.destination.name" not in listed.attributes


@pytest.mark.anyio
async def test_a_failed_request_is_a_failed_span(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    """A 5xx marks its span; a client's mistake does not."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    async with running(tmp_path) as api:
        api.service.journal.observe(Tracing(provider).record)
        await api.client.get("/v1/topics/none")
        api.service.drain()
        await api.client.get("/v1/topics")
    statuses = [span.status.status_code for span in spans.get_finished_spans()]
    assert statuses == [StatusCode.UNSET, StatusCode.ERROR]


def test_spans_are_sent_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `tracing` the service exports by itself; closing it sends the rest."""
    sent = InMemorySpanExporter()
    exporter = "opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter"
    monkeypatch.setattr(exporter, lambda: sent)
    with serving(tmp_path, tracing=True):
        pass  # `serving` polls the readiness
    assert {span.name for span in sent.get_finished_spans()} == {"getReadiness"}
    resource = sent.get_finished_spans()[0].resource
    assert resource.attributes["service.name"] == "tidelog"


def test_tracing_without_the_extra_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is configured without the package, the error names what to install."""
    monkeypatch.setattr(tracing, "find_spec", lambda _: None)
    with pytest.raises(InvalidConfig, match=r"tidelog\[otel\]"):
        Tracing.from_environment()


def test_nothing_of_opentelemetry_is_loaded_by_default() -> None:
    """Neither SDK nor exporter is loaded unless configured.

    FastAPI itself loads the API package.
    """
    check = "import sys, app.server; sys.exit('opentelemetry.sdk' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "wrong",
    [
        "nonsense",
        PARENT.upper(),
        f"{PARENT}-00",
        PARENT.replace("00-", "ff-", 1),
        PARENT.replace(TRACE, "0" * 32),
        f"00-{TRACE}-{'0' * 16}-01",
        PARENT.replace(TRACE, "<script>alert(document.cookie)//"),
    ],
)
async def test_a_traceparent_that_is_none_is_neither_echoed_nor_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    """W3C has it ignored; on every lane, in every answer, and in the problem documents."""
    caplog.set_level("INFO", logger="tidelog.access")
    async with open_service(tmp_path, access_log=True) as service, wired(service) as client:
        await client.put("/v1/topics/events", json={})
        await client.get(RECORDS)
        caplog.clear()
        trace = {"traceparent": wrong}
        elsewhere = trace | {"origin": "http://evil.example"}
        for path in (RECORDS, f"{RECORDS}?explain=1", f"{RECORDS}?offset=9", "/v1/none"):
            answer = await client.get(path, headers=trace)
            assert "traceparent" not in answer.headers
            assert TRACE not in answer.text
        refused = await client.post(RECORDS, headers=elsewhere)
        assert refused.status_code == 403
        assert "traceparent" not in refused.headers
        assert len(refused.json()["trace_id"]) == 32
    assert {vars(one)["trace_id"] for one in caplog.records} == {None}
