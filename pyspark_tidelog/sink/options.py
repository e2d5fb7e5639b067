"""The options of the write side, parsed and validated once; as strict as those of the source."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_tidelog.endpoint import ENDPOINT_OPTIONS, Endpoint, parse_endpoint
from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.option_values import ensure_topic_name
from pyspark_tidelog.records.encode import CODECS

DEFAULT_LEDGER: Final = "tidelog-spark-writes"

# The ledger's cursors are those of a group; its name has room for as much as that less a prefix.
LONGEST_WRITE_ID: Final = 200

_KNOWN: Final = (*ENDPOINT_OPTIONS, "topic", "compression", "ledger", "writeId")
# What Spark hands to every sink beside its own options.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "path", "queryname"})
# What a job that comes from Kafka's sink may bring along; and a name that Spark does not redact.
_OTHER_NAMES: Final = {
    "apikey": "token",
    "apikeyfile": "tokenFile",
    "kafka.bootstrap.servers": "url",
    "kafka.compression.type": "compression",
    "kafka.transactional.id": "writeId",
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where and how rows are written."""

    endpoint: Endpoint
    topic: str | None = None
    """Goes before a column `topic`, as in Kafka's sink."""
    compression: str = "none"
    ledger: str = DEFAULT_LEDGER
    """The topic in which writers note what they began and what they decided."""
    write_id: str | None = None
    """Of a batch: a write with the same name happens once, however often it is run."""

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> WriteOptions:
        """Read every option, or raise OptionError for the first that is wrong."""
        given = {name.lower(): value for name, value in raw.items()}
        _refuse_unknown(given)
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
        """Return the options for a stream; raise OptionError for one that makes no sense."""
        if self.write_id is not None:
            raise OptionError(
                "option writeId is for batch queries: a stream is known by its checkpoint"
            )
        return self


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _KNOWN}
    for name in given:
        if name in known or name in _SPARKS_OWN:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        if name in _OTHER_NAMES:
            hint = f"here it is called {_OTHER_NAMES[name]}"
        elif name == "includeheaders":
            hint = "headers are written where there is a column headers"
        else:
            hint = f"did you mean {known[near[0]]}?" if near else f"known are {', '.join(_KNOWN)}"
        raise OptionError(f"unknown option {name}: {hint}")
