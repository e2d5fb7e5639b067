"""Programs from elsewhere, configured as their pages say, send to the service."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.peers.program import free_ports
from tests.docs.page_shell import PageShell
from tests.docs.sender_pages import settings_of, steps_of
from tests.docs.snippets import Snippet
from tests.support.captures import body_of, captures
from tests.support.generators import run
from tests.support.server import Served, serving

pytestmark = pytest.mark.long


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """An empty service on a free port."""
    with serving(tmp_path / "data") as served:
        yield served


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[None]:
    """Run a program that does not end by itself; what it prints is in `output.txt`."""
    with (
        (folder / "output.txt").open("wb") as output,
        subprocess.Popen(command, cwd=folder, stdout=output, stderr=output) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def set_up(page: str, url: str, folder: Path) -> None:
    first = next(steps_of(page, url))
    assert isinstance(first, Snippet)
    PageShell(folder).run(first.code)


def arrived(url: str, topic: str, count: int, **encoding: str) -> list[dict[str, Any]]:
    """Wait until the topic has so many records and return them."""
    path = f"{url}/v1/topics/{topic}/partitions/0/records"
    records: list[dict[str, Any]] = []
    while len(records) < count:
        parameters: dict[str, str | int] = {"offset": len(records), "max_wait_ms": 30_000}
        page = httpx.get(path, params={**parameters, **encoding}, timeout=60).json()
        assert page["records"], f"{len(records)} of {count} records came"
        records += page["records"]
    assert len(records) == count
    return records


@pytest.mark.needs("fluent-bit")
def test_fluent_bit_ships_the_lines_of_a_file(served: Served, tmp_path: Path) -> None:
    """Each line is a record, in the order of the file."""
    set_up("fluent-bit.md", served.url, tmp_path)
    port = served.url.rpartition(":")[2]
    settings = settings_of("fluent-bit.md", "yaml", served.url)
    (tmp_path / "fluent-bit.yaml").write_text(settings.replace("port: 8080", f"port: {port}"))
    (tmp_path / "access.log").write_text("GET / 200\nGET /café 404\n")
    with running(["fluent-bit", "-c", "fluent-bit.yaml"], tmp_path):
        records = arrived(served.url, "app-logs", 2)
    assert [record["value"]["log"] for record in records] == ["GET / 200", "GET /café 404"]


@pytest.mark.needs("syslog-ng")
def test_syslog_ng_ships_its_messages(served: Served, tmp_path: Path) -> None:
    """Each message is a record with its fields."""
    set_up("syslog-ng.md", served.url, tmp_path)
    messages = tmp_path / "messages"
    messages.write_text("<34>1 2026-11-23T15:20:00Z web-1 sshd 12 ID47 - Accepted key for ada\n")
    settings = settings_of("syslog-ng.md", "conf", served.url)
    (tmp_path / "syslog-ng.conf").write_text(settings.replace('"messages"', f'"{messages}"'))
    files = ["-R", "persist", "-c", "control", "-p", "pid"]
    files = [word if word.startswith("-") else str(tmp_path / word) for word in files]
    configuration = ["-f", str(tmp_path / "syslog-ng.conf")]
    with running(["syslog-ng", "-F", "--no-caps", *configuration, *files], tmp_path):
        (record,) = arrived(served.url, "syslog", 1)
    assert record["value"]["MESSAGE"] == "Accepted key for ada"
    assert record["value"]["HOST"] == "web-1"


@pytest.mark.needs("node", "npm")
def test_the_javascript_sdk_of_cloudevents_sends(served: Served, tmp_path: Path) -> None:
    """The program of the page runs as it is."""
    set_up("cloudevents.md", served.url, tmp_path)
    run(tmp_path, "npm", "install", "--no-audit", "--no-fund", "cloudevents@10.0.0")
    (tmp_path / "send.mjs").write_text(settings_of("cloudevents.md", "js", served.url))
    run(tmp_path, "node", "send.mjs")
    (record,) = arrived(served.url, "orders", 1)
    assert record["value"] == {"order": 17}
    headers = {header["key"]: header["value"] for header in record["headers"]}
    assert headers["ce_source"] == "/shop/eu"


@pytest.mark.needs("node", "npm")
def test_the_javascript_library_of_splunk_sends(served: Served, tmp_path: Path) -> None:
    """The program of the page runs as it is."""
    set_up("splunk.md", served.url, tmp_path)
    token = httpx.post(f"{served.url}/v1/topics/containers/ingest-tokens").json()["token"]
    run(tmp_path, "npm", "install", "--no-audit", "--no-fund", "splunk-logging@0.11.1")
    (tmp_path / "send.mjs").write_text(settings_of("splunk.md", "js", served.url))
    run(tmp_path, "env", f"TOKEN={token}", "node", "send.mjs")
    records = arrived(served.url, "containers", 2)
    assert [one["value"]["event"]["message"] for one in records] == [
        "flight 1141 landed",
        {"flight": 1714},
    ]
    assert records[0]["value"]["host"] == "ewr-1"


@pytest.mark.needs("prometheus-alertmanager")
def test_alertmanager_notifies(served: Served, tmp_path: Path) -> None:
    """A notification is a record whose key is the name of the alert."""
    set_up("alertmanager.md", served.url, tmp_path)
    settings = settings_of("alertmanager.md", "yaml", served.url)
    at_once = settings.replace("  group_by:", "  group_wait: 1s\n  group_by:")
    (tmp_path / "alertmanager.yml").write_text(at_once)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    options = [f"--web.listen-address={address}", "--cluster.listen-address="]
    files = ["--config.file=alertmanager.yml", "--storage.path=alertmanager"]
    alert = {"labels": {"alertname": "DiskFull", "instance": "db-1:9100"}}
    with running(["prometheus-alertmanager", *files, *options], tmp_path):
        transport = httpx.HTTPTransport(retries=8)  # until it listens
        with httpx.Client(base_url=f"http://{address}", transport=transport) as client:
            client.post("/api/v2/alerts", json=[alert]).raise_for_status()
        (record,) = arrived(served.url, "alerts", 1)
    assert record["key"] == "DiskFull"
    assert record["value"]["alerts"][0]["labels"] == alert["labels"]


@pytest.mark.needs("otelcol")
def test_a_collector_forwards_what_it_receives(served: Served, tmp_path: Path) -> None:
    """Spans that a program exports to the Collector are in the log."""
    set_up("opentelemetry.md", served.url, tmp_path)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = settings_of("opentelemetry.md", "yaml", served.url).replace(
        "service:\n", "service:\n  telemetry: {metrics: {level: none}}\n"
    )
    (tmp_path / "collector.yaml").write_text(settings.replace("127.0.0.1:4318", address))
    sent = body_of(captures()["opentelemetry-python-traces"].raw)
    with running(["otelcol", "--config", "collector.yaml"], tmp_path):
        transport = httpx.HTTPTransport(retries=8)  # until it listens
        with httpx.Client(base_url=f"http://{address}", transport=transport) as client:
            headers = {"content-type": "application/x-protobuf"}
            client.post("/v1/traces", content=sent, headers=headers).raise_for_status()
        (record,) = arrived(served.url, "telemetry", 1, encoding="base64")
    received = ExportTraceServiceRequest.FromString(base64.b64decode(record["value"]))
    assert received == ExportTraceServiceRequest.FromString(sent)
