"""Amazon Data Firehose: the records in the bodies that it delivers, and the receipt it needs.

"Appendix: HTTP endpoint delivery request and response specifications" of its documentation. A body
is `{"requestId": …, "timestamp": …, "records": [{"data": <base64>}, …]}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from app.codecs.json_parts import json_values, record_elements, text_lines, without_bom
from app.codecs.receipts import to_json
from app.errors import MalformedRequest
from app.http.answers import Answer, Body, json_answer
from app.http.body_faults import malformed_json
from app.operations.ingest.profile import IngestProfile
from engine.errors import InvalidRecord
from engine.types import Buffer

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
