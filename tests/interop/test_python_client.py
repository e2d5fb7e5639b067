"""A Python client generated from the committed document works against the service."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import new_batch
from tests.support.generators import DOCUMENT, client_module, python_client
from tests.support.server import serving


@pytest.fixture
def generated(tmp_path: Path) -> Iterator[str]:
    """What the generator said; the client can be imported until the test ends."""
    with python_client(tmp_path) as printed:
        yield printed


def test_every_operation_is_generated(tmp_path: Path, generated: str) -> None:
    """The generator leaves out no operation, and has a module for each under its tag."""
    assert "Endpoint will not be generated" not in generated
    document = json.loads(DOCUMENT.read_text())
    made = {file.stem for file in (tmp_path / "tidelog_client").glob("api/*/*.py")}
    for path in document["paths"].values():
        for operation in path.values():
            name = "".join(f"_{c.lower()}" if c.isupper() else c for c in operation["operationId"])
            assert name in made


@pytest.mark.usefixtures("generated")
def test_what_the_generated_client_appends_it_reads(tmp_path: Path) -> None:
    """Create, append as JSON and as batches, read both back, follow, and meet a typed error."""
    models: Any = client_module("models")
    with serving(tmp_path / "data") as served, client_module("client").Client(served.url) as client:
        client_module("api.topics.put_topic").sync(
            "events", client=client, body=models.PutTopic(partitions=1)
        )
        record = models.RecordIn.from_dict({"key": "ada", "value": {"n": 1}})
        receipt = client_module("api.produce.append_records").sync(
            "events", 0, client=client, body=models.RecordsIn(records=[record])
        )
        assert (receipt.base_offset, receipt.count, receipt.duplicate) == (0, 1, False)
        file = client_module("types").File(payload=io.BytesIO(bytes(new_batch(2))))
        receipt = client_module("api.produce.append_batches").sync(
            "events", 0, client=client, body=file
        )
        assert (receipt.base_offset, receipt.last_offset) == (1, 2)
        page = client_module("api.consume.read_records").sync(
            "events", 0, client=client, offset="0"
        )
        assert [record.offset for record in page.records] == [0, 1, 2]
        assert page.records[0].to_dict()["value"] == {"n": 1}
        missing = client_module("api.consume.read_records").sync("events", 7, client=client)
        assert (missing.code, missing.retryable) == ("partition_not_found", False)
        url = "/v1/topics/events/partitions/0/tail?offset=2"
        with client.get_httpx_client().stream("GET", url) as stream:
            lines = iter(stream.iter_lines())
            assert "event: records" in lines, "the stream ended early"
            data = next(line for line in lines if line.startswith("data: "))
            assert json.loads(data.removeprefix("data: "))["records"][0]["offset"] == 2
