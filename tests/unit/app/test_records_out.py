"""Stored batches to JSON: every kind of field, every bound, and damage."""

import base64
import json
import struct
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.translate.records_out import render_records
from app.translate.stored import CHUNK_RECORDS, View
from engine.errors import StoredDataCorrupt
from engine.records.batch import stamp_crc
from engine.records.builder import NewRecord, build_batch
from engine.records.header import CRC_POSITION, RECORDS_COUNT_POSITION, Codec
from engine.types import Buffer
from tests.support.legacy import legacy_message, legacy_wrapper

ALL = View(start=0)


def page(data: Buffer, view: View = ALL) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads(render_records(data, view).text)
    return records


def shown(records: Iterable[NewRecord], view: View = ALL) -> list[dict[str, Any]]:
    return page(build_batch(records), view)


def value_of(value: bytes | None, encoding: str | None = None) -> tuple[object, object]:
    (record,) = shown([(1, None, value, ())], View(start=0, encoding=encoding))
    return record["value"], record["value_encoding"]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (None, (None, "json")),
        (b"null", ("null", "utf8")),
        (b" null\n", (" null\n", "utf8")),
        (b"nul", ("nul", "utf8")),
        (b"", ("", "utf8")),
        (b"[1]", ([1], "json")),
        ('"caf\u00e9"'.encode(), ("caf\u00e9", "json")),
        (b'"\xff"', ("Iv8i", "base64")),
        (b"\xff", ("/w==", "base64")),
        (b"[" * 10_000, ("[" * 10_000, "utf8")),
        (b'"\\ud800"', ('"\\ud800"', "utf8")),
        (b"a\x00b", ("a\x00b", "utf8")),
    ],
)
def test_a_value_is_shown_as_what_it_is(stored: bytes | None, expected: tuple[object, str]) -> None:
    """A tombstone is null and nothing else is; what is not JSON falls back."""
    assert value_of(stored) == expected


@pytest.mark.parametrize("encoding", ["json", "utf8", "base64"])
def test_a_tombstone_is_null_in_every_encoding(encoding: str) -> None:
    """Null has no bytes to encode."""
    assert value_of(None, encoding) == (None, encoding)


@given(st.binary(max_size=40))
def test_whatever_is_stored_can_be_told_from_its_answer(stored: bytes) -> None:
    """Encoding and text together give the stored bytes back, up to the spelling of JSON."""
    value, encoding = value_of(stored)
    if encoding == "base64":
        assert base64.b64decode(str(value)) == stored
    elif encoding == "utf8":
        assert str(value).encode() == stored
    else:
        assert json.loads(stored) == value or value != value  # noqa: PLR0124  # NaN is no JSON


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_ndjson_keeps_to_its_line(end: str) -> None:
    """Line breaks in stored JSON, in keys, values and headers, become spaces (R8)."""
    record: NewRecord = (
        1,
        f"[1,{end}2]".encode(),
        f"{{{end}}}".encode(),
        [("h", f"[{end}]".encode())],
    )
    view = View(start=0, encoding="json", is_ndjson=True)
    text = render_records(build_batch([record, (2, None, b"3", ())]), view).text
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["value"] for line in lines] == [{}, 3]
    assert lines[0]["key"] == [1, 2]
    assert lines[0]["headers"] == [{"key": "h", "value": [], "encoding": "json"}]


def test_bounds_say_where_to_go_on() -> None:
    """A bound inside a batch ends the answer there, by records, by bytes, by offset (R7)."""
    batch = build_batch([(1, None, b"1", ())] * 10)
    for view, count, next_offset in (
        (View(start=2, max_records=3), 3, 5),
        (View(start=0, max_answer_bytes=1), 1, 1),
        (View(start=4, end=6), 2, 6),
        (View(start=10), 0, None),
        (ALL, 10, None),
    ):
        rendered = render_records(batch, view)
        assert (rendered.count, rendered.next_offset) == (count, next_offset)
        assert len(page(batch, view)) == count


def test_messages_of_old_formats_are_shown_as_records() -> None:
    """Those in a wrapper one by one, from the offset asked for; they have no leader epoch."""
    data = legacy_message(3, b"k", b"1", magic=0) + legacy_wrapper(4, [b"2", b"3"], timestamp=7)
    records = page(data, View(start=3, limit_bytes=1000))
    keys = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")
    assert [tuple(record[key] for key in keys) for record in records] == [
        (3, -1, "create", "k", 1, [], -1),
        (4, 7, "create", "key", 2, [], -1),
        (5, 8, "create", "key", 3, [], -1),
    ]
    assert page(data, View(start=5, limit_bytes=1000)) == records[2:]
    assert render_records(data, View(start=3, max_records=2, limit_bytes=1000)).next_offset == 5


@pytest.mark.parametrize(
    "values",
    [
        [b"[1", b"2],3"],  # together one list of as many elements
        [b"1,2", b"[3", b"4]"],
        [b' "a"', b'"b"'],
        [b"1", b"", b"2"],
        [b'{"a":1}', b"null", b"\xff", None],
        ['"caf\u00e9"'.encode()[:-2], b'\xa9"'],
    ],
)
def test_values_are_judged_one_by_one_where_it_matters(values: list[bytes | None]) -> None:
    """Records next to each other do not change what either is shown as."""
    together = [
        (record["value"], record["value_encoding"])
        for record in shown((1, None, value, ()) for value in values)
    ]
    assert together == [value_of(value) for value in values]


@given(
    st.lists(
        st.none()
        | st.sampled_from(b'1,[]" n').map(lambda octet: bytes([octet]))
        | st.binary(max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_records_are_shown_together_as_each_alone(values: list[bytes | None]) -> None:
    """Whatever lies side by side: each value is shown as if it were the only one."""
    together = shown((1, None, value, ()) for value in values)
    assert [(one["value"], one["value_encoding"]) for one in together] == [
        value_of(v) for v in values
    ]


@pytest.mark.parametrize("last", [0, 1, CHUNK_RECORDS - 1, CHUNK_RECORDS, 2 * CHUNK_RECORDS + 5])
def test_the_record_that_passes_the_bound_is_the_last(last: int) -> None:
    """max_answer_bytes ends an answer with the record that reaches it, wherever a chunk ends."""
    batch = build_batch([(1, None, b"1", ())] * (3 * CHUNK_RECORDS))
    sizes = [len(json.dumps(record, separators=(",", ":"))) + 1 for record in page(batch)]
    for bound in (sum(sizes[:last]) + 1, sum(sizes[: last + 1])):
        array = render_records(batch, View(start=0, max_answer_bytes=bound))
        lines = render_records(batch, View(start=0, max_answer_bytes=bound, is_ndjson=True))
        for rendered in (array, lines):
            assert (rendered.count, rendered.next_offset) == (last + 1, last + 1)
        shown = [json.loads(line) for line in lines.text.splitlines()]
        assert shown == json.loads(array.text) == page(batch)[: last + 1]


def test_a_field_without_bytes_is_null_beside_one_that_is_no_text() -> None:
    """Keys of one answer fall back alone: null stays null, bytes become base64."""
    records = shown((1, key, b"1", ()) for key in (None, b"\xff", b"k"))
    keys = [(record["key"], record["key_encoding"]) for record in records]
    assert keys == [(None, "utf8"), ("/w==", "base64"), ("k", "utf8")]


def test_damage_is_never_shown() -> None:
    """A batch whose checksum or compressed bytes are wrong is reported with its offset."""
    for codec in (Codec.NONE, Codec.GZIP):
        batch = build_batch([(1, None, b"x" * 100, ())], codec=codec, base_offset=7)
        batch[CRC_POSITION] ^= 1
        with pytest.raises(StoredDataCorrupt) as found:
            render_records(batch, ALL)
        assert found.value.facts()["offset"] == 7


@pytest.mark.parametrize("count", [4, -3])
def test_a_batch_that_holds_other_records_than_it_says_is_damage(count: int) -> None:
    """With a right checksum too: what the codec refuses and the referee confirms is reported."""
    batch = build_batch([(1, None, b"x", ())] * 3, base_offset=7)
    struct.pack_into(">i", batch, RECORDS_COUNT_POSITION, count)
    stamp_crc(batch, 0, len(batch))
    with pytest.raises(StoredDataCorrupt, match="offset 7"):
        render_records(batch, ALL)


def test_a_batch_of_several_chunks_is_shown_whole() -> None:
    """No record is lost or repeated where a chunk ends, and bounds hold in any of them."""
    count = 2 * CHUNK_RECORDS + 1
    batch = build_batch((n, b"%d" % n, b"%d" % n, ()) for n in range(count))
    assert [record["value"] for record in page(batch)] == list(range(count))
    view = View(start=CHUNK_RECORDS + 3, end=count - 2)
    assert [record["key"] for record in page(batch, view)] == [
        str(n) for n in range(CHUNK_RECORDS + 3, count - 2)
    ]
