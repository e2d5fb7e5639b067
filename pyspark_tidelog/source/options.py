"""The options of the read side, parsed and validated once.

Names and meanings are those of Spark's Kafka source where it has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_tidelog.endpoint import ENDPOINT_OPTIONS, Endpoint, parse_endpoint
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.option_values import boolean, choice, integer, refuse_unknown
from pyspark_tidelog.source.positions import EARLIEST, LATEST, Position, TimeSpec, parse_position
from pyspark_tidelog.source.topics import TOPIC_OPTIONS, Topics, parse_topics

DEFAULT_FETCH_BYTES: Final = 8 << 20
MAX_FETCH_BYTES: Final = 1 << 30

_KNOWN: Final = (
    *ENDPOINT_OPTIONS,
    *TOPIC_OPTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "isolation.level",
    "pushFilters",
    "fetchBytes",
    "checkCrcs",
)
_KAFKA_NAMES: Final = {
    "kafka.isolation.level": "isolation.level",
    "kafka.check.crcs": "checkCrcs",
}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one query."""

    endpoint: Endpoint
    topics: Topics
    starting: Position | None = None
    """None is earliest for a batch and latest for a stream, as in Spark's Kafka source."""
    ending: Position | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int = 0
    max_records_per_partition: int | None = None
    """The most offsets that one task reads."""
    fail_on_data_loss: bool = True
    include_headers: bool = False
    isolation: str = "read_uncommitted"
    push_filters: bool = False
    """For batch queries. If the session does not push filters down, Spark fails the query."""
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    """Of one request; a task holds two answers in memory."""
    check_crcs: bool = False
    """Off by default: the service verified the checksums, and checking costs 20% of the speed."""

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> Options:
        """Parse every option; raise OptionError for the first that is wrong."""
        given = {name.lower(): value for name, value in raw.items()}
        refuse_unknown(given, _KNOWN, _KAFKA_NAMES)
        strategy = choice(
            given, "startingOffsetsByTimestampStrategy", ("error", "latest"), default="error"
        )
        return cls(
            endpoint=parse_endpoint(given),
            topics=parse_topics(given),
            starting=parse_position(given, "starting", or_latest=strategy == "latest"),
            ending=parse_position(given, "ending", or_latest=True),
            max_offsets_per_trigger=integer(given, "maxOffsetsPerTrigger", at_least=1),
            max_bytes_per_trigger=integer(given, "maxBytesPerTrigger", at_least=1),
            min_partitions=integer(given, "minPartitions", at_least=1) or 0,
            max_records_per_partition=integer(given, "maxRecordsPerPartition", at_least=1),
            fail_on_data_loss=boolean(given, "failOnDataLoss", default=True),
            include_headers=boolean(given, "includeHeaders", default=False),
            isolation=choice(
                given,
                "isolation.level",
                ("read_uncommitted", "read_committed"),
                default="read_uncommitted",
            ),
            push_filters=boolean(given, "pushFilters", default=False),
            fetch_bytes=integer(given, "fetchBytes", at_least=1, at_most=MAX_FETCH_BYTES)
            or DEFAULT_FETCH_BYTES,
            check_crcs=boolean(given, "checkCrcs", default=False),
        )

    def for_batch(self) -> Options:
        """Return the options; raise OptionError for one that makes no sense in a batch query."""
        if self.starting == LATEST:
            raise OptionError(
                "startingOffsets cannot be 'latest' in a batch query: it would read nothing"
            )
        if self.ending == EARLIEST:
            raise OptionError("endingOffsets cannot be 'earliest': the query would read nothing")
        return self

    def for_stream(self) -> Options:
        """Return the options; raise OptionError for one that makes no sense in a stream."""
        if self.ending is not None:
            option = self.ending.option if isinstance(self.ending, TimeSpec) else "endingOffsets"
            raise OptionError(f"{option} is for batch queries: a streaming query has no end")
        if self.push_filters:
            raise OptionError(
                "pushFilters is for batch queries: Spark does not push a stream's filters down"
            )
        return self
