"""A Python client generated from the committed document works against the service."""

import importlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.builders import new_batch
from tests.support.generators import DOCUMENT, generate
from tests.support.server import serving


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package `tidelog_client`, importable until the test ends; what the generator said."""
    told = tmp_path / "told.txt"
    told.write_text(generate(tmp_path, "openapi-python-client"))
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
