"""Amazon Data Firehose: the records that it collects in the bodies that it delivers.

"Appendix: HTTP endpoint delivery request and response specifications" of its documentation. A body
is `{"requestId": …, "timestamp": …, "records": [{"data": <base64>}, …]}`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from app.codecs.json_parts import json_values, record_elements, text_lines, without_bom
from app.http.answers import Body
from app.http.body_faults import malformed_json
from app.http.problems import MalformedRequest
from engine.errors import InvalidRecord
from engine.types import Buffer


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
