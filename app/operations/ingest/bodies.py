"""Bodies to records: the head, the parameter `split` and the profile make a plan.

A plan needs no body. With it a body of any size becomes records, on the event loop or on a worker;
values keep the bytes that were sent.

A sender knows nothing of `max.message.bytes`: ten thousand lines may be more than one batch. All
batches of a request are one append, so all of them are written or none.

Amazon Data Firehose delivers `{"requestId": …, "timestamp": …, "records": [{"data": <base64>}, …]}`
and needs a receipt of its own ("Appendix: HTTP endpoint delivery request and response
specifications" of its documentation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec

from app.codecs.json_parts import (
    elements_of,
    ensure_json_text,
    json_lines,
    json_values,
    record_elements,
    text_lines,
    without_bom,
)
from app.codecs.json_pointer import Pointer, pointer_of
from app.codecs.receipts import to_json
from app.errors import MAX_ERRORS_LISTED, MalformedRequest, malformed_json
from app.http.answers import JSON, NDJSON, Answer, Body, json_answer
from app.operations.ingest import cloudevents
from app.operations.ingest.profiles import IngestProfile
from app.operations.request_content import sent_type
from engine.errors import InvalidRecord, TooLarge
from engine.records.builder import HeaderList, NewRecord, RecordColumns
from engine.records.header import HEADER_BYTES
from engine.types import Buffer
from schemas.ingest import Split

RECORD_BYTES: Final = 40
"""Most bytes of a record besides its key, value and headers: seven varints and the attributes."""

HEADER_SIZES_BYTES: Final = 10
"""Upper bound of the two length varints of a header."""

_DELIVERY_BYTES: Final = 2 * 1024
"""Room for the headers of a delivery, which are on the first record."""


def header_bytes(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return an upper bound of the encoded size of a record's headers."""
    return sum(
        [len(name.encode()) + len(value or b"") + HEADER_SIZES_BYTES for name, value in headers]
    )


def parts_of(
    records: list[NewRecord] | RecordColumns, max_bytes: int
) -> Iterator[list[NewRecord] | RecordColumns]:
    """Yield the records in parts of at most `max_bytes` as a batch; a larger record goes alone."""
    room = max_bytes - HEADER_BYTES - _DELIVERY_BYTES
    if len(records) == 1 or _total(records) <= room:
        yield records
        return
    sizes = _sizes(records)
    start, used = 0, 0
    for index, size in enumerate(sizes):
        if used + size > room and index > start:
            yield _slice(records, start, index)
            start, used = index, 0
        used += size
    yield _slice(records, start, len(sizes))


def _total(records: list[NewRecord] | RecordColumns) -> int:
    """Return the sum of `_sizes`; of columns without a step of Python for each record."""
    if not isinstance(records, RecordColumns):
        return sum(_sizes(records))
    data = sum(map(len, filter(None, records.values))) + sum(map(len, filter(None, records.keys)))
    return data + len(records) * _fixed_bytes(records)


def _fixed_bytes(records: RecordColumns) -> int:
    """Return the most bytes of each record besides its key and value.

    Lines and elements have the same headers; those of a delivery have room of their own.
    """
    return RECORD_BYTES + (header_bytes(records.headers[-1]) if records.headers else 0)


def _sizes(records: list[NewRecord] | RecordColumns) -> list[int]:
    if isinstance(records, RecordColumns):
        fixed = _fixed_bytes(records)
        pairs = zip(records.keys, records.values, strict=True)
        return [fixed + len(key or b"") + len(value or b"") for key, value in pairs]
    return [
        RECORD_BYTES + len(key or b"") + len(value or b"") + header_bytes(headers)
        for _, key, value, headers in records
    ]


def _slice(
    records: list[NewRecord] | RecordColumns, start: int, end: int
) -> list[NewRecord] | RecordColumns:
    if not isinstance(records, RecordColumns):
        return records[start:end]
    headers: Sequence[HeaderList] | None = records.headers
    return RecordColumns(
        records.timestamps[start:end],
        records.keys[start:end],
        records.values[start:end],
        None if headers is None else headers[start:end],
    )


_REQUEST_ID: Final = b"x-amz-firehose-request-id"


def is_firehose(profile: IngestProfile) -> bool:
    """Whether bodies and receipts are those of Amazon Data Firehose."""
    return profile.handshake == "firehose"


def receipt(head: Mapping[bytes, bytes], now_ms: int) -> Answer:
    """Return the receipt that Firehose needs: with any other it repeats the request for ever."""
    request_id = head.get(_REQUEST_ID, b"").decode("latin-1")
    return json_answer(to_json({"requestId": request_id, "timestamp": now_ms}))


class _Record(msgspec.Struct, gc=False):
    """One record; its data arrives as base64."""

    data: bytes


_RECORD: Final = msgspec.json.Decoder(_Record)


def data_cut(body: Body, max_records: int) -> Sequence[Buffer]:
    """Take the data of each record, as it was given to Firehose."""
    return [*_data_of(body, max_records)]


def line_cut(body: Body, max_records: int) -> Sequence[Buffer]:
    """Take the lines of the data of each record."""
    return _split(body, max_records, text_lines)


def value_cut(body: Body, max_records: int) -> Sequence[Buffer]:
    """Take the JSON values of the data of each record: producers pack several into one."""
    return _split(body, max_records, json_values)


def _split(
    body: Body, max_records: int, parts_of: Callable[..., Sequence[Buffer]]
) -> Sequence[Buffer]:
    values: list[Buffer] = []
    for data in _data_of(body, max_records):
        values += parts_of(data, max_records=max_records - len(values))
    return values


def _data_of(body: Body, max_records: int) -> Sequence[bytes]:
    try:
        elements = record_elements(without_bom(body), max_records=max_records)
    except msgspec.ValidationError:
        raise InvalidRecord(
            "with the handshake firehose and a split, a body is what Amazon Data Firehose sends: "
            'a JSON object with records, an array of {"data": <base64>}'
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed_json(body, error) from None
    found = []
    for number, element in enumerate(elements):
        try:
            found.append(_RECORD.decode(element).data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise MalformedRequest(
                f'records[{number}] of the body is not {{"data": <base64>}}'
            ) from None
    return found


NewRecords: TypeAlias = list[NewRecord] | RecordColumns

Cut: TypeAlias = Callable[[Body, int], Sequence[Buffer | None]]
"""From a body, and how many records a request may have, to the values of its records."""


class Plan(NamedTuple):
    """How the bodies of requests with one head become records."""

    cut: Cut
    headers: HeaderList
    """Of every record."""
    key: bytes | None = None
    """The key that the head brings."""
    pointer: Pointer | None = None
    """Finds the key of each record in its value, rather than in the head."""
    is_event: bool = False
    """Whether each value is a CloudEvent in JSON, whose attributes become headers."""

    @property
    def is_whole(self) -> bool:
        """Whether a body is one record."""
        return self.cut not in _SPLITTING

    @property
    def record_bytes(self) -> int:
        """Most bytes of a record besides its key and its value, with a byte of value."""
        return RECORD_BYTES + header_bytes(self.headers) + 1

    @property
    def has_own_keys(self) -> bool:
        """Whether the records of one body may have different keys."""
        return self.pointer is not None or self.is_event

    def key_of(self, value: Buffer | None) -> bytes | None:
        """Return the key of a record."""
        found = None
        if self.pointer is not None and value is not None:
            found = self.pointer.find_text(value)
        return self.key if found is None else found


def plan_of(head: Mapping[bytes, bytes], split: Split | None, profile: IngestProfile) -> Plan:
    """Return the plan for requests with this head; `split` is the parameter of the URL.

    Raises MalformedRequest for a CloudEvent in binary mode with an attribute that is missing or not
    valid.
    """
    media_type = sent_type(head)
    headers: HeaderList = []
    if media_type:
        headers.append(("content-type", head[b"content-type"]))
    headers += [(name.decode(), head[name]) for name in profile.headers if name in head]
    key = pointer = None
    if profile.key is not None:
        source = profile.key
        key = head.get(source.headers[0]) if source.headers else None
        pointer = pointer_of(source.pointer) if source.pointer is not None else None
    if media_type == cloudevents.BATCH:
        headers[0] = ("content-type", cloudevents.EVENT)
        return Plan(_elements, headers, key, pointer, is_event=True)
    if media_type == cloudevents.EVENT:
        return Plan(_one_json, headers, key, pointer, is_event=True)
    if cloudevents.is_binary(head):
        attributes = cloudevents.attributes_of_head(head)
        if key is None:
            key = attributes.get(cloudevents.KEY)
        return Plan(_event_data, headers + cloudevents.headers_of(attributes), key, pointer)
    split = split or profile.split
    if is_firehose(profile) and split != "none":
        # The type is that of the body; nothing says what was given to Firehose.
        return Plan(_OF_FIREHOSE[split], headers[bool(media_type) :], key, pointer)
    return Plan(_cut_of(media_type, split), headers, key, pointer)


def records_of(
    body: Body, plan: Plan, *, now_ms: int, max_records: int, requires_keys: bool
) -> NewRecords:
    """Return the records of a body, ready for a batch.

    Raises MalformedRequest for invalid JSON, InvalidRecord if there is no record, or one that
    is not acceptable, TooLarge if there are too many. Only a batch of events may be empty.
    """
    values = plan.cut(body, max_records)
    if not values and not plan.is_event:
        raise InvalidRecord("the body contains no record")
    count = len(values)
    if plan.is_event:
        events = cast("Sequence[Buffer]", values)
        records: NewRecords = cloudevents.records_of(events, plan.headers, plan.key_of, now_ms)
    else:
        keys = [plan.key] * count if plan.pointer is None else [*map(plan.key_of, values)]
        records = RecordColumns([now_ms] * count, keys, values, [plan.headers] * count)
    if requires_keys:
        _ensure_keys([key for _, key, *_ in records])
    return records


def _ensure_keys(keys: Sequence[Buffer | None]) -> None:
    faults = [
        {"index": index, "field": "key", "code": "invalid_record", "detail": "there is no key"}
        for index, key in enumerate(keys)
        if key is None
    ]
    if faults:
        raise InvalidRecord(
            "nothing was written: a compacted topic needs keys, and its ingest profile says where "
            f"to find them; records without one: {len(faults)}",
            faults[:MAX_ERRORS_LISTED],
        )


def _cut_of(media_type: bytes, split: Split) -> Cut:
    if media_type == NDJSON:
        return _json_lines
    if split == "array":
        return _elements
    if split == "values":
        return json_value_cut
    if split == "lines":
        return _json_lines if media_type == JSON else text_line_cut
    return _one_json if media_type == JSON else _whole


def _whole(body: Body, _max_records: int) -> Sequence[Buffer]:
    return (_some(body),)


def _one_json(body: Body, max_records: int) -> Sequence[Buffer]:
    body = without_bom(_some(body))
    try:
        ensure_json_text(body)
    except MalformedRequest:
        _ensure_no_lines(body, max_records)
        raise
    return (body,)


def _ensure_no_lines(body: Body, max_records: int) -> None:
    """Raise MalformedRequest if a body is lines of JSON, which programs send as JSON.

    A body of one line is one value either way, so the second line is what this answers.
    """
    try:
        count = len(json_lines(body, max_records=max_records))
    except (MalformedRequest, TooLarge):
        return
    raise MalformedRequest(
        f"the body is {count} lines of JSON, and its Content-Type says that it is one value: add "
        "?split=lines to the sender's URL, set split to lines in the topic's ingest profile, or "
        "send Content-Type: application/x-ndjson"
    )


def _event_data(body: Body, _max_records: int) -> Sequence[Buffer | None]:
    return (body or None,)


def _elements(body: Body, max_records: int) -> Sequence[Buffer]:
    return elements_of(without_bom(_some(body)), max_records=max_records)


def _json_lines(body: Body, max_records: int) -> Sequence[Buffer]:
    return json_lines(without_bom(_some(body)), max_records=max_records)


def json_value_cut(body: Body, max_records: int) -> Sequence[Buffer]:
    """Take JSON values one after the other, however they are separated."""
    return json_values(without_bom(_some(body)), max_records=max_records)


def text_line_cut(body: Body, max_records: int) -> Sequence[Buffer]:
    """Take the lines of a text."""
    return text_lines(_some(body), max_records=max_records)


def _some(body: Body) -> Body:
    if not body:
        raise InvalidRecord("the body is empty: there is nothing to append")
    return body


_OF_FIREHOSE: Final[Mapping[Split, Cut]] = {
    "array": data_cut,
    "lines": line_cut,
    "values": value_cut,
}
_SPLITTING: Final = frozenset(
    {_elements, _json_lines, json_value_cut, text_line_cut, *_OF_FIREHOSE.values()}
)
