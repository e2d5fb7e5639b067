"""Parameters of the hot operations as frozen values, and their fast parsers.

The fast parsers accept what clients usually send. For anything else, malformed or merely unusual,
they return None: FastAPI then validates the request and explains errors. So there is one place that
refuses, and the fast parsers never guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, get_args
from urllib.parse import urlencode

from app.codecs.conditions import ensure_defined
from app.codecs.filter import Filter, filter_of
from app.errors import MalformedRequest
from app.http.answers import ARROW, JSON, NDJSON
from engine.log.results import LogTag
from engine.types import (
    INT32_MAX,
    INT64_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    FetchIsolation,
)
from schemas.common import EncodingName
from schemas.fetch import ReadParameters, ReadRecordsParameters
from schemas.fetch_many import PartitionFetch
from schemas.ingest import Split
from schemas.tail import TailParameters, TopicTailParameters


class AppendCall(NamedTuple):
    """The parameters of an append."""

    acks: str = "all"
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    expected_end_offset: int | None = None
    expected_tag: LogTag | None = None


class IngestCall(NamedTuple):
    """The parameters of an ingest request."""

    split: Split | None = None
    """None: as the topic's ingest profile says."""


class OffsetSpec(NamedTuple):
    """The start of a read: an offset, or a name for one."""

    offset: int | None = None
    place: str = ""
    """`earliest`, `latest`, `ts`, or `last`."""
    timestamp: int = 0
    """With `ts`; with `last` the number of offsets before the end."""


class ReadCall(NamedTuple):
    """The parameters of a read. Ends are exclusive; None means the service's default."""

    start: OffsetSpec
    max_bytes: int | None = None
    min_bytes: int = 1
    max_wait_ms: int = 0
    end_offset: int | None = None
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
    on_out_of_range: str = "error"
    log_id: str | None = None
    explain: bool = False
    max_records: int | None = None
    encoding: str | None = None
    offsets_as_text: bool = False
    is_end_fixed: bool = True
    """Whether `end_offset` is what the URL says: a name for it moves."""
    media_type: bytes | None = None
    """The format in the URL, which overrides Accept."""
    query: bytes = b""
    """The start as sent, for the link to the next page and the ETag of an immutable answer."""
    last_event_id: str = ""
    """Of a tail, in the URL; empty without one."""
    filter: str | None = None
    """The expression of `app.codecs.filter`, which has been read once."""

    @property
    def wanted(self) -> Filter | None:
        return None if self.filter is None else filter_of(self.filter)


INT16_MAX: Final = 2**15 - 1

PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
"""The only spelling of a partition's number; other digits do not match."""

_NUMBER: Final = re.compile(rb"[0-9]{1,18}")
_ETAG: Final = re.compile(r'(?:W/)?"(\d{1,10})-(\d{1,19})-([0-9a-f]{8})"')
_FOREIGN_ETAG: Final = re.compile(r'(?:W/)?"[!#-~\x80-\xff]*"')
_LOG_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_EVENT_OFFSET: Final = re.compile(r"[0-9]{1,19}")
_NO_LOG: Final = LogTag(leader_epoch=-1, log_end_offset=-1, last_batch_crc=0)


def parse_etag(text: str) -> LogTag:
    """Return the log end of an ETag; raises MalformedRequest if it is not an ETag.

    `W/` is removed: a proxy that compressed the answer has added it. An unknown ETag becomes a log
    end that no log has.
    """
    match = _ETAG.fullmatch(text.strip())
    if match is not None:
        return LogTag(int(match[1]), int(match[2]), int(match[3], 16))
    if _FOREIGN_ETAG.fullmatch(text.strip()):
        return _NO_LOG
    raise MalformedRequest(
        "If-Match accepts one ETag, of an offsets response or of an append", header="if-match"
    )


def parse_offset(text: str) -> OffsetSpec:
    """Return the start that `text` names; its form has been checked."""
    if text.isdigit():
        return OffsetSpec(_within(int(text), "offset"))
    if text.startswith("ts:"):
        return OffsetSpec(None, "ts", _within(int(text[3:]), "offset"))
    return OffsetSpec(None, text)


def _within(number: int, name: str) -> int:
    if number > INT64_MAX:
        raise MalformedRequest(f"{name} does not fit in 64 bits", parameter=name)
    return number


_OF_ONE_PAGE: Final = ("max_records", "min_bytes", "max_wait_ms", "explain")


def read_call(parameters: ReadParameters, query: bytes) -> ReadCall:
    """Return the call for validated parameters.

    Raises MalformedRequest for parameters that a stream, which has many pages, does not support.
    """
    for name in _OF_ONE_PAGE if parameters.stream else ():
        if name in parameters.model_fields_set:
            raise MalformedRequest(
                f"{name} applies to one page; stream=true sends all pages", parameter=name
            )
    call = ReadCall(
        parse_offset(parameters.offset),
        parameters.max_bytes,
        parameters.min_bytes,
        parameters.max_wait_ms,
        parameters.end_offset,
        FetchIsolation(parameters.isolation),
        parameters.on_out_of_range,
        parameters.log_id,
        parameters.explain,
        query=query,
    )
    if isinstance(parameters, ReadRecordsParameters):
        call = call._replace(
            max_records=parameters.max_records,
            encoding=parameters.encoding,
            offsets_as_text=parameters.offsets == "string",
            media_type=_FORMATS.get(parameters.format) if parameters.format else None,
            filter=_readable(parameters.filter),
        )
        if parameters.last is not None:
            if "offset" in parameters.model_fields_set:
                raise MalformedRequest(
                    "last says where to start, and so does offset", parameter="last"
                )
            call = call._replace(start=OffsetSpec(None, "last", parameters.last))
    return call


def _readable(text: str | None) -> str | None:
    """Return a filter that can be read; raises MalformedRequest."""
    if text is not None:
        filter_of(text)
    return text


def tail_call(parameters: TopicTailParameters, query: bytes) -> ReadCall:
    """Return the call of a tail."""
    return ReadCall(
        parse_offset(parameters.offset),
        parameters.max_bytes,
        isolation=FetchIsolation(parameters.isolation),
        on_out_of_range=parameters.on_out_of_range,
        log_id=parameters.log_id if isinstance(parameters, TailParameters) else None,
        encoding=parameters.encoding,
        offsets_as_text=parameters.offsets == "string",
        query=query,
        last_event_id=parameters.last_event_id,
        filter=_readable(parameters.filter),
    )


def last_event_id(call: ReadCall, head: Mapping[bytes, bytes]) -> str:
    """Return the id after which a tail goes on; empty without one.

    The header wins: clients that resume by parameter repeat the URL that they began with.
    """
    return head.get(b"last-event-id", b"").decode("latin-1") or call.last_event_id


def resumed(call: ReadCall, head: Mapping[bytes, bytes]) -> ReadCall:
    """Return the call of a tail that continues after its client's last event.

    This overrides the rest of the URL, which EventSource repeats. The id names the log, so another
    one is refused; raises MalformedRequest for an id that no event has.
    """
    event_id = last_event_id(call, head)
    if not event_id:
        return call
    log_id, _, offset = event_id.rpartition(":")
    if _EVENT_OFFSET.fullmatch(offset) is None or (log_id and _LOG_ID.fullmatch(log_id) is None):
        raise MalformedRequest(
            "Last-Event-ID must be the id of an event of this tail: <log_id>:<next offset>",
            header="last-event-id",
        )
    start = OffsetSpec(_within(int(offset), "last-event-id"))
    return call._replace(start=start, log_id=log_id or call.log_id)


def fetch_call(wanted: PartitionFetch) -> ReadCall:
    """Return the call that reads one partition of a fetch; its query is that of readBatches."""
    query = {
        name: value
        for name, value in wanted.model_dump(exclude_defaults=True).items()
        if name not in {"topic", "partition", "offset", "log_id"}
    }
    return ReadCall(
        parse_offset(str(wanted.offset)),
        wanted.max_bytes,
        end_offset=wanted.end_offset,
        isolation=FetchIsolation(wanted.isolation),
        on_out_of_range=wanted.on_out_of_range,
        log_id=wanted.log_id,
        query=urlencode(query).encode(),
    )


def _fast_start(text: bytes) -> OffsetSpec | None:
    return OffsetSpec(int(text)) if _NUMBER.fullmatch(text) else _PLACES.get(text)


def _fast_number(text: bytes) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _fast_count(text: bytes) -> int | None:
    return _fast_number(text) or None  # FastAPI refuses 0


def _fast_log_id(text: bytes) -> str | None:
    is_usual = text.replace(b".", b"").replace(b"-", b"").isalnum() and len(text) <= _LOG_ID_BYTES
    return text.decode() if is_usual else None


_PLACES: Final = {
    b"earliest": OffsetSpec(None, "earliest"),
    b"latest": OffsetSpec(None, "latest"),
}
_LOG_ID_BYTES: Final = 64
_ISOLATIONS: Final = {
    isolation.value.encode(): isolation
    for isolation in (FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED)
}
_ENCODINGS: Final = {encoding.encode(): encoding for encoding in get_args(EncodingName)}

_FORMATS: Final[Mapping[str, bytes]] = {"json": JSON, "ndjson": NDJSON, "arrow": ARROW}

_OF_RECORDS: Final[Mapping[bytes, tuple[str, Callable[[bytes], object]]]] = {
    b"offset": ("start", _fast_start),
    b"max_bytes": ("max_bytes", _fast_number),
    b"isolation": ("isolation", _ISOLATIONS.get),
    b"log_id": ("log_id", _fast_log_id),
    b"encoding": ("encoding", _ENCODINGS.get),
    b"offsets": ("offsets_as_text", {b"number": False, b"string": True}.get),
    b"min_bytes": ("min_bytes", _fast_number),
    b"max_wait_ms": ("max_wait_ms", _fast_number),
    b"end_offset": ("end_offset", _fast_number),
    b"max_records": ("max_records", _fast_count),
    b"format": ("media_type", lambda text: _FORMATS.get(text.decode("latin-1"))),
}
_SHOWN_ONLY: Final = frozenset({b"encoding", b"offsets", b"max_records", b"format"})
_FAST_PARAMETERS: Final = {
    "records": _OF_RECORDS,
    "batches": {name: one for name, one in _OF_RECORDS.items() if name not in _SHOWN_ONLY},
}
"""The parameters of each kind of read: the field of its call, and a parser of usual values."""


def fast_read_call(kind: str, query: bytes) -> ReadCall | None:
    """Return the call of a usual query string; None if FastAPI has to parse it.

    `kind` is `records` or `batches`.
    """
    parameters = _FAST_PARAMETERS[kind]
    values: dict[str, object] = {}
    for part in query.split(b"&") if query else ():
        name, _, text = part.partition(b"=")
        known = parameters.get(name)
        if known is None:
            return None
        field, parse = known
        value = parse(text)
        if value is None or field in values:
            return None
        values[field] = value
    values.setdefault("start", _PLACES[b"earliest"])
    return ReadCall(**values, query=query)  # type: ignore[arg-type]  # the table ties names to types


FAST_APPEND_CALLS: Final[Mapping[bytes, AppendCall]] = {
    b"": AppendCall(),
    b"acks=0": AppendCall("0"),
    b"acks=1": AppendCall("1"),
    b"acks=all": AppendCall(),
}
"""The calls of usual query strings; FastAPI parses any other."""

FAST_INGEST_CALLS: Final[Mapping[bytes, IngestCall]] = {
    b"": IngestCall(),
    **{b"split=" + split.encode(): IngestCall(split) for split in get_args(Split)},
}
"""The same for ingest."""

_APPEND_CONDITIONS: Final = frozenset({b"expected-offset", b"if-match"})
_PRODUCER_HEADERS: Final = (b"producer-id", b"producer-epoch", b"producer-sequence")


def with_headers(call: AppendCall, head: Mapping[bytes, bytes]) -> AppendCall:
    """Return the call with the options in the request's headers.

    Raises MalformedRequest for an invalid header, and for an incomplete producer.
    """
    ensure_defined(head, _APPEND_CONDITIONS)
    given = [name for name in _PRODUCER_HEADERS if name in head]
    if given:
        if len(given) < len(_PRODUCER_HEADERS):
            raise MalformedRequest(
                "Producer-Id, Producer-Epoch and Producer-Sequence must be sent together",
                header=given[0].decode(),
            )
        call = call._replace(
            producer_id=_header_number(head, b"producer-id", INT64_MAX),
            producer_epoch=_header_number(head, b"producer-epoch", INT16_MAX),
            base_sequence=_header_number(head, b"producer-sequence", INT32_MAX),
        )
    if b"expected-offset" in head:
        expected = _header_number(head, b"expected-offset", INT64_MAX)
        call = call._replace(expected_end_offset=expected)
    if b"if-match" in head:
        call = call._replace(expected_tag=parse_etag(head[b"if-match"].decode("latin-1")))
    return call


def ensure_no_conditions(head: Mapping[bytes, bytes]) -> None:
    """Refuse options that do not apply to an append over several partitions."""
    for name in (*_PRODUCER_HEADERS, b"expected-offset", b"if-match"):
        if name in head:
            raise MalformedRequest(
                f"{name.decode()} applies to one partition; append to that partition instead",
                header=name.decode(),
            )


def ensure_unconditional(head: Mapping[bytes, bytes]) -> None:
    """Refuse the options of an append to one partition, and conditions, where neither apply."""
    ensure_defined(head, ())
    ensure_no_conditions(head)


def _header_number(head: Mapping[bytes, bytes], name: bytes, greatest: int) -> int:
    text = head[name].strip()
    if not text.isdigit() or len(text) > 19 or int(text) > greatest:
        raise MalformedRequest(
            f"{name.decode()} must be an integer from 0 to {greatest}", header=name.decode()
        )
    return int(text)
