"""The options of the data source, parsed and validated once.

Names and meanings are those of Spark's Kafka source where it has them; names are case-insensitive,
as everywhere in Spark. An unknown option is refused: a misspelt `startingOffset` must not silently
read the whole log.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from pyspark_tidelog.errors import OptionError
from pyspark_tidelog.positions import EARLIEST, LATEST, OffsetSpec, parse_offset_spec

DEFAULT_FETCH_BYTES: Final = 8 << 20
MAX_FETCH_BYTES: Final = 1 << 30
DEFAULT_TIMEOUT_S: Final = 60.0
DEFAULT_RETRIES: Final = 10

# Kafka's rule for topic names, which also keeps a name from leaving its place in a URL.
_TOPIC_NAME: Final = r"[a-zA-Z0-9._-]{1,249}"

_KNOWN: Final = (
    "url",
    "subscribe",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "fetchBytes",
    "checkCrcs",
    "token",
    "timeout",
    "retries",
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the service is and how patiently it is asked."""

    url: str
    token: str | None = field(default=None, repr=False)
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Of one attempt: to connect, and of each wait for bytes."""
    retries: int = DEFAULT_RETRIES
    """Attempts after the first; ten, with growing pauses, last twenty seconds: a restart's time."""


@dataclass(frozen=True, slots=True)
class Options:
    """What one query asks for."""

    endpoint: Endpoint
    topics: tuple[str, ...]
    starting: OffsetSpec | None = None
    """None is earliest for a batch and latest for a stream, as in Kafka's source."""
    ending: OffsetSpec | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int = 0
    fail_on_data_loss: bool = True
    include_headers: bool = False
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
            topics=parse_topics(given.get("subscribe")),
            starting=_offset_spec(given, "startingOffsets"),
            ending=_offset_spec(given, "endingOffsets"),
            max_offsets_per_trigger=_integer(given, "maxOffsetsPerTrigger", at_least=1),
            max_bytes_per_trigger=_integer(given, "maxBytesPerTrigger", at_least=1),
            min_partitions=_integer(given, "minPartitions", at_least=1) or 0,
            fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
            include_headers=_boolean(given, "includeHeaders", default=False),
            fetch_bytes=_integer(given, "fetchBytes", at_least=1, at_most=MAX_FETCH_BYTES)
            or DEFAULT_FETCH_BYTES,
            check_crcs=_boolean(given, "checkCrcs", default=False),
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
            raise OptionError("endingOffsets is for batch queries: a streaming query has no end")
        return self


def parse_endpoint(given: Mapping[str, str]) -> Endpoint:
    """Read url, token, timeout and retries from options with lower-case names."""
    url = (given.get("url") or "").strip().rstrip("/")
    if not url:
        raise OptionError("option url is required, for example http://127.0.0.1:8080")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_valid_port(url):
        raise OptionError(f"option url must be http://host:port or https://host:port, not {url!r}")
    if parts.username is not None or parts.query or parts.fragment:
        raise OptionError(
            "option url must be an address alone: credentials go into the option token"
        )
    retries = _integer(given, "retries", at_least=0, at_most=1000)
    return Endpoint(
        url=url,
        token=given.get("token") or None,
        timeout_s=_seconds(given, "timeout", default=DEFAULT_TIMEOUT_S),
        retries=DEFAULT_RETRIES if retries is None else retries,
    )


def parse_topics(text: str | None) -> tuple[str, ...]:
    """Split a comma list into the names of topics, in the order given, each once."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if not names:
        raise OptionError("option subscribe is required: a topic or a comma list of topics")
    for name in names:
        if not re.fullmatch(_TOPIC_NAME, name) or name in (".", ".."):
            raise OptionError(f"option subscribe: {name!r} cannot be the name of a topic")
    return tuple(dict.fromkeys(names))


def _refuse_unknown(given: Iterable[str]) -> None:
    known = {name.lower(): name for name in _KNOWN}
    for name in given:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {known[near[0]]}?" if near else f"known are {', '.join(_KNOWN)}"
        raise OptionError(f"unknown option {name}: {hint}")


def _offset_spec(given: Mapping[str, str], option: str) -> OffsetSpec | None:
    text = given.get(option.lower())
    return None if text is None else parse_offset_spec(option, text)


def _integer(
    given: Mapping[str, str], option: str, *, at_least: int, at_most: int = (1 << 63) - 1
) -> int | None:
    text = given.get(option.lower())
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = at_least - 1
    if not at_least <= number <= at_most:
        ceiling = f" and at most {at_most}" if at_most < (1 << 63) - 1 else ""
        raise OptionError(
            f"option {option} must be a whole number of at least {at_least}{ceiling}, not {text!r}"
        )
    return number


def _boolean(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = given.get(option.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {option} must be true or false, not {text!r}")
    return text.strip().lower() == "true"


def _seconds(given: Mapping[str, str], option: str, *, default: float) -> float:
    text = given.get(option.lower())
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise OptionError(f"option {option} must be seconds between 0 and 3600, not {text!r}")
    return seconds


def _has_valid_port(url: str) -> bool:
    try:
        port = urlsplit(url).port
    except ValueError:
        return False
    return port is None or port > 0
