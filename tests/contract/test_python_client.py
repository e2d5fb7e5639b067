"""A Python client generated from the committed document works against the service."""

import importlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.builders import new_batch
from tests.support.server import serving

DOCUMENT = Path(__file__).parents[2] / "openapi" / "openapi.json"

CONFIG = {
    # What the generator shall treat as bytes, text or JSON; docs/clients/python.md tells users.
    "content_type_overrides": {
        "application/vnd.kafka.recordbatch.v2": "application/octet-stream",
        "application/vnd.apache.arrow.stream": "application/octet-stream",
        "application/vnd.kafka.json.v2+json": "application/json",
        "application/vnd.kafka.binary.v2+json": "application/json",
        "text/event-stream": "text/plain",
    }
}


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package `tidelog_client`, importable until the test ends; what the generator said."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    program = Path(sys.executable).with_name("openapi-python-client")
    command: list[str | Path] = [
        program,
        "generate",
        "--path",
        DOCUMENT,
        "--meta",
        "none",
        "--config",
        config,
    ]
    target = tmp_path / "tidelog_client"
    told = tmp_path / "told.txt"
    with told.open("w") as output:
        command += ["--output-path", target]
        subprocess.run(command, check=True, stdout=output, stderr=output, timeout=120)
    monkeypatch.syspath_prepend(tmp_path)
    yield told
    for name in [name for name in sys.modules if name.startswith("tidelog_client")]:
        del sys.modules[name]


def module(name: str) -> ModuleType:
    return importlib.import_module(f"tidelog_client.{name}")


def test_every_operation_is_generated(generated: Path) -> None:
    """The generator leaves out no operation, and has a module for each under its tag."""
    assert "Endpoint will not be generated" not in generated.read_text()
    document = json.loads(DOCUMENT.read_text())
    made = {file.stem for file in generated.with_name("tidelog_client").glob("api/*/*.py")}
    for path in document["paths"].values():
        for operation in path.values():
            name = "".join(f"_{c.lower()}" if c.isupper() else c for c in operation["operationId"])
            assert name in made


def test_what_the_generated_client_appends_it_reads(tmp_path: Path, generated: Path) -> None:
    """Create, append as JSON and as batches, read both back, follow, and meet a typed error."""
    models: Any = module("models")
    with serving(tmp_path / "data") as served, module("client").Client(served.url) as client:
        module("api.topics.put_topic").sync(
            "events", client=client, body=models.PutTopic(partitions=1)
        )
        record = models.RecordIn.from_dict({"key": "ada", "value": {"n": 1}})
        receipt = module("api.produce.append_records").sync(
            "events", 0, client=client, body=models.RecordsIn(records=[record])
        )
        assert (receipt.base_offset, receipt.count, receipt.duplicate) == (0, 1, False)
        file = module("types").File(payload=io.BytesIO(bytes(new_batch(2))))
        receipt = module("api.produce.append_batches").sync("events", 0, client=client, body=file)
        assert (receipt.base_offset, receipt.last_offset) == (1, 2)
        page = module("api.consume.read_records").sync("events", 0, client=client, offset="0")
        assert [record.offset for record in page.records] == [0, 1, 2]
        assert page.records[0].to_dict()["value"] == {"n": 1}
        missing = module("api.consume.read_records").sync("events", 7, client=client)
        assert (missing.code, missing.retryable) == ("partition_not_found", False)
        url = "/v1/topics/events/partitions/0/tail?offset=2"
        with client.get_httpx_client().stream("GET", url) as stream:
            lines = iter(stream.iter_lines())
            assert "event: records" in lines, "the stream ended early"
            data = next(line for line in lines if line.startswith("data: "))
            assert json.loads(data.removeprefix("data: "))["records"][0]["offset"] == 2
