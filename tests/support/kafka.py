"""`@kafka("UnifiedLogTest.testTruncateTo")`: the tests of Apache Kafka that a test here mirrors."""

import pytest

kafka = pytest.mark.kafka
