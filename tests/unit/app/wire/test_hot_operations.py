"""Which URLs are hot operations, and how many of them are remembered."""

import pytest

from app.wire import hot_request
from app.wire.hot_request import HotOperations

PARTITION = b"/v1/topics/events/partitions/0/"


@pytest.mark.parametrize(
    ("method", "url", "operation"),
    [
        (b"POST", PARTITION + b"records", "appendRecords"),
        (b"POST", PARTITION + b"batches?acks=1", "appendBatches"),
        (b"GET", PARTITION + b"records?offset=7&max_wait_ms=500", "readRecords"),
        (b"GET", PARTITION + b"batches", "readBatches"),
        (b"GET", PARTITION + b"offsets", "getOffsets"),
    ],
)
def test_hot_operations_are_found(method: bytes, url: bytes, operation: str) -> None:
    """Each is found with its partition and parameters, the second time as well."""
    operations = HotOperations()
    found = operations[method + b" " + url]
    assert found is not None
    assert (found.operation, found.topic, found.partition) == (operation, "events", 0)
    assert (found.call is None) == (operation == "getOffsets")
    assert operations[method + b" " + url] is found


@pytest.mark.parametrize(
    ("method", "url"),
    [
        (b"PUT", PARTITION + b"records"),
        (b"POST", PARTITION + b"offsets"),
        (b"GET", PARTITION + b"tail"),
        (b"POST", PARTITION + b"records?acks=2"),
        (b"GET", PARTITION + b"records?offset=%30"),
        (b"GET", PARTITION + b"offsets?timestamp=latest"),
        (b"GET", PARTITION + b"segments"),
        (b"GET", b"/v1/topics/a%2Fb/partitions/0/records"),
        (b"GET", b"/v1/topics/events/partitions/00/records"),
        (b"GET", b"/v1/topics/events/partitions/0/records/"),
        (b"GET", b"/v1/topics/%b/partitions/0/records" % (b"x" * 250)),
        (b"GET", b"/v1/topics/caf\xe9/partitions/0/records"),
    ],
)
def test_everything_else_is_left_to_fastapi(method: bytes, url: bytes) -> None:
    """Other methods, other spellings and parameters that need an explanation are not hot."""
    assert HotOperations()[method + b" " + url] is None


def test_few_urls_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that moves on asks for a new URL each time: the oldest are forgotten."""
    monkeypatch.setattr(hot_request, "MAX_URLS", 2)
    operations = HotOperations()
    first, *_ = [operations[b"GET %brecords?offset=%d" % (PARTITION, at)] for at in range(3)]
    again = operations[b"GET %brecords?offset=0" % PARTITION]
    assert again == first
    assert again is not first
