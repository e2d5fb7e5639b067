"""What the tests of the connector share: a service in memory."""

from collections.abc import Iterator

import pytest

from tests.support.log_service import LogService, serving


@pytest.fixture
def service() -> Iterator[LogService]:
    with serving(LogService()) as running:
        yield running
