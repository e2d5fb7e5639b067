"""The options of the write side, parsed and validated once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_tidelog.endpoint import ENDPOINT_OPTIONS, Endpoint, parse_endpoint
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.option_values import ensure_topic_name, refuse_unknown
from pyspark_tidelog.records.encode import CODECS

DEFAULT_LEDGER: Final = "tidelog-spark-writes"

# The name is part of the name of a consumer group, which has a prefix of its own.
LONGEST_WRITE_ID: Final = 200

_KNOWN: Final = (*ENDPOINT_OPTIONS, "topic", "compression", "ledger", "writeId")
# Spark passes its own options to every sink as well.
_OWN_OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname"})
_KAFKA_NAMES: Final = {
    "kafka.compression.type": "compression",
    "kafka.transactional.id": "writeId",
}
_HINTS: Final = {"includeheaders": "headers are written where there is a column headers"}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of one write."""

    endpoint: Endpoint
    topic: str | None = None
    """Takes precedence over a column `topic`, as in Spark's Kafka sink."""
    compression: str = "none"
    ledger: str = DEFAULT_LEDGER
    """The topic in which writers record what they began and what they decided."""
    write_id: str | None = None
    """For batch queries: a write with this name happens once, however often it runs."""

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> WriteOptions:
        """Parse every option; raise OptionError for the first that is wrong."""
        given = {name.lower(): value for name, value in raw.items()}
        ours = [name for name in given if name not in _OWN_OF_SPARK]
        refuse_unknown(ours, _KNOWN, _KAFKA_NAMES, _HINTS)
        topic, ledger = given.get("topic") or None, given.get("ledger") or DEFAULT_LEDGER
        for option, name in (("topic", topic), ("ledger", ledger)):
            if name is not None:
                ensure_topic_name(option, name)
        if topic == ledger:
            raise OptionError("options topic and ledger must be two topics")
        compression = given.get("compression", "none").strip().lower()
        if compression not in CODECS:
            raise OptionError(
                f"option compression must be one of {', '.join(CODECS)}, not {compression!r}"
            )
        write_id = given.get("writeid")
        if write_id is not None and not (
            write_id.isprintable() and 0 < len(write_id.encode()) <= LONGEST_WRITE_ID
        ):
            raise OptionError(
                f"option writeId must be 1 to {LONGEST_WRITE_ID} bytes of printable characters"
            )
        return cls(parse_endpoint(given), topic, compression, ledger, write_id)

    def for_stream(self) -> WriteOptions:
        """Return the options; raise OptionError for one that makes no sense in a stream."""
        if self.write_id is not None:
            raise OptionError(
                "option writeId is for batch queries: a stream is known by its checkpoint"
            )
        return self
