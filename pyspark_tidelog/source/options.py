"""The options of the data source, parsed and validated once.

Names and meanings are those of Spark's Kafka source where it has them; names are case-insensitive,
as everywhere in Spark. An unknown option is refused: a misspelt `startingOffset` must not silently
read the whole log.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark_tidelog.endpoint import ENDPOINT_OPTIONS, Endpoint, parse_endpoint
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.option_values import boolean, choice, integer
from pyspark_tidelog.positions import EARLIEST, LATEST, OffsetSpec, parse_offset_spec
from pyspark_tidelog.source.times import TimeSpec, parse_time, parse_times
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
# What a job that comes from Kafka's source may bring along; and a name that Spark does not redact.
_OTHER_NAMES: Final = {
    "apikey": "token",
    "apikeyfile": "tokenFile",
    "kafka.bootstrap.servers": "url",
    "kafka.isolation.level": "isolation.level",
    "kafka.check.crcs": "checkCrcs",
}

Place: TypeAlias = OffsetSpec | TimeSpec


@dataclass(frozen=True, slots=True)
class Options:
    """What one query asks for."""

    endpoint: Endpoint
    topics: Topics
    starting: Place | None = None
    """None is earliest for a batch and latest for a stream, as in Kafka's source."""
    ending: Place | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int = 0
    max_records_per_partition: int | None = None
    """Offsets of one task: more make more tasks."""
    fail_on_data_loss: bool = True
    include_headers: bool = False
    isolation: str = "read_uncommitted"
    """As the service calls it; read_committed leaves aborted and open transactions out."""
    push_filters: bool = False
    """Of a batch; a session that does not push filters down fails every query of such a source."""
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    """Of one request; larger amortises latency, and two of them are in memory per task."""
    check_crcs: bool = False
    """The service verified every checksum at the append; again costs a fifth of the speed."""

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> Options:
        """Read every option, or raise OptionError for the first that is wrong."""
        given = {name.lower(): value for name, value in raw.items()}
        _refuse_unknown(given)
        return cls(
            endpoint=parse_endpoint(given),
            topics=parse_topics(given),
            starting=_starting(given),
            ending=_ending(given),
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
        """Return the options for a batch query; raise OptionError for one that makes no sense."""
        if self.starting == LATEST:
            raise OptionError(
                "startingOffsets cannot be 'latest' in a batch query: it would read nothing"
            )
        if self.ending == EARLIEST:
            raise OptionError("endingOffsets cannot be 'earliest': the query would read nothing")
        return self

    def for_stream(self) -> Options:
        """Return the options for a stream; raise OptionError for one that makes no sense."""
        if self.ending is not None:
            option = self.ending.option if isinstance(self.ending, TimeSpec) else "endingOffsets"
            raise OptionError(f"{option} is for batch queries: a streaming query has no end")
        if self.push_filters:
            raise OptionError("pushFilters is for batch queries: Spark keeps a stream's to itself")
        return self


def _refuse_unknown(given: Iterable[str]) -> None:
    known = {name.lower(): name for name in _KNOWN}
    for name in given:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        if name in _OTHER_NAMES:
            hint = f"here it is called {_OTHER_NAMES[name]}"
        else:
            hint = f"did you mean {known[near[0]]}?" if near else f"known are {', '.join(_KNOWN)}"
        raise OptionError(f"unknown option {name}: {hint}")


def _starting(given: Mapping[str, str]) -> Place | None:
    option = "startingOffsetsByTimestampStrategy"
    or_latest = choice(given, option, ("error", "latest"), default="error") == "latest"
    return _place(given, "starting", or_latest=or_latest)


def _ending(given: Mapping[str, str]) -> Place | None:
    return _place(given, "ending", or_latest=True)


def _place(given: Mapping[str, str], side: str, *, or_latest: bool) -> Place | None:
    """Read one end; where it is given in several ways the first here counts, as in Kafka's."""
    options = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    time, times, offsets = (given.get(option.lower()) for option in options)
    if time is not None:
        return parse_time(options[0], time, or_latest=or_latest)
    if times is not None:
        return parse_times(options[1], times, or_latest=or_latest)
    return None if offsets is None else parse_offset_spec(options[2], offsets)
