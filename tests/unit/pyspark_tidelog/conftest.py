"""What the tests of the connector share: a service in memory."""

from collections.abc import Iterator

import pytest

from tests.support.kafka_batches import numbered
from tests.support.log_service import LogService, MemoryLog, serving


@pytest.fixture
def service() -> Iterator[LogService]:
    with serving(LogService()) as running:
        yield running


@pytest.fixture
def logs(service: LogService) -> list[MemoryLog]:
    """A topic of two partitions with 30 and 10 records."""
    first, second = service.make("t", partitions=2)
    first.append(numbered(30))
    second.append(numbered(10))
    return [first, second]
