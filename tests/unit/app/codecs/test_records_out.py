"""Stored batches to JSON: every kind of field, every bound, and damage."""

import base64
import json
import struct
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from itertools import count as ticking
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.records_out import render_records
from app.codecs.stored import View
from app.errors import RecordTooLarge
from engine.errors import StoredDataCorrupt
from engine.records.batch import stamp_crc
from engine.records.budget import DecodeBudget, DecodeLimits
from engine.records.builder import NewRecord, build_batch, encode_batch
from engine.records.compression import compress
from engine.records.header import CRC_POSITION, RECORDS_COUNT_POSITION, Codec, parse_header
from engine.records.parts import CHUNK_RECORDS
from engine.records.record import Record, encode_record
from engine.types import INT64_MAX, Buffer
from tests.support.kafka_batches import reframed
from tests.support.legacy import legacy_message, legacy_wrapper

ALL = View(start=0)
MEBIBYTE = 1 << 20


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
        assert json.loads(stored) == value or value != value  # noqa: PLR0124  # NaN is not JSON


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
        (View(start=0, max_answer_bytes=1), 1, 1),  # one at least
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


@pytest.mark.parametrize(
    "count", [1, 2, CHUNK_RECORDS - 1, CHUNK_RECORDS, CHUNK_RECORDS + 1, 2 * CHUNK_RECORDS + 5]
)
def test_an_answer_ends_before_the_record_that_would_pass_the_bound(count: int) -> None:
    """max_answer_bytes is what the text has at most, wherever a chunk ends (R7)."""
    batch = build_batch([(1, None, b"1", ())] * (3 * CHUNK_RECORDS))
    sizes = [len(json.dumps(record, separators=(",", ":"))) + 1 for record in page(batch)]
    for more, shown in ((0, count), (-1, count - 1), (sizes[0] - 1, count)):
        bound = sum(sizes[:count]) + more
        array = render_records(batch, View(start=0, max_answer_bytes=bound + 1))
        lines = render_records(batch, View(start=0, max_answer_bytes=bound, is_ndjson=True))
        for rendered in (array, lines):
            at_least_one = max(1, shown)
            assert (rendered.count, rendered.next_offset) == (at_least_one, at_least_one)
            assert rendered.stopped_by == "max_answer_bytes"
        if shown:
            assert len(array.text) <= bound + 1
            assert len(lines.text) <= bound
        found = [json.loads(line) for line in lines.text.splitlines()]
        assert found == json.loads(array.text) == page(batch)[: max(1, shown)]


LINE_ENDS = "\u0085\u2028\u2029"
TEXTS = st.text(max_size=100) | st.text(f"{LINE_ENDS}a", max_size=100)
FIELDS = st.none() | st.binary(max_size=300) | TEXTS.map(str.encode)


@given(
    st.lists(
        st.tuples(
            FIELDS,
            FIELDS,
            st.lists(
                st.tuples(st.text(max_size=5) | st.text(LINE_ENDS, max_size=5), FIELDS), max_size=4
            ),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([None, "json", "utf8", "base64"]),
    st.integers(1, 3_000),
    st.booleans(),
)
def test_no_answer_passes_its_bound(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    encoding: str | None,
    bound: int,
    is_ndjson: bool,  # noqa: FBT001  # hypothesis passes it by position
) -> None:
    """A record is measured to the byte before it is written: escapes, base64, headers and all."""
    batch = build_batch([(1, *row) for row in rows])
    whole = View(start=0, encoding=encoding, is_ndjson=is_ndjson, offsets_as_text=is_ndjson)
    text = render_records(batch, whole).text
    view = replace(whole, max_answer_bytes=bound, max_record_bytes=bound)
    ends = accumulate(_sizes(text, is_ndjson=is_ndjson), initial=0 if is_ndjson else 1)
    fitting = sum(1 for end in ends if end <= bound) - 1
    if fitting <= 0:
        with pytest.raises(RecordTooLarge) as refusal:
            render_records(batch, view)
        assert refusal.value.facts()["next_offset"] == 1
        return
    rendered = render_records(batch, view)
    assert len(rendered.text) <= bound
    assert rendered.count == fitting
    assert rendered.next_offset == (fitting if fitting < len(rows) else None)


def _sizes(text: Buffer, *, is_ndjson: bool) -> list[int]:
    """The bytes of each record with what separates it."""
    if is_ndjson:
        return [len(line) for line in bytes(text).splitlines(keepends=True)]
    return [len(raw) + 1 for raw in msgspec.json.decode(text, type=list[msgspec.Raw])]


def test_a_record_larger_than_any_answer_is_an_error_that_tells_the_way_on() -> None:
    """60 MiB of zeros would be 377 MB of JSON: they are refused, in little memory (R16)."""
    size = 60 * MEBIBYTE
    batch = build_batch([(1, None, b"1", ()), (1, None, bytes(size), ())], codec=Codec.ZSTD)
    limit = 32 * MEBIBYTE
    view = View(start=0, max_answer_bytes=limit, max_record_bytes=limit)
    first = render_records(batch, view)
    assert (first.count, first.next_offset) == (1, 1)
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLarge, match=r"readBatches.*offset 2") as refusal:
            render_records(batch, replace(view, start=1))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    facts = refusal.value.facts()
    assert (facts["offset"], facts["next_offset"], facts["limit_bytes"]) == (1, 2, limit)
    assert peak_bytes < 5 * size
    small = build_batch([(1, None, bytes(6 * MEBIBYTE), ())])
    with pytest.raises(RecordTooLarge) as refusal:
        render_records(small, view)
    assert refusal.value.facts()["actual_bytes"] == len(render_records(small, ALL).text)
    assert render_records(small, replace(view, encoding="base64")).count == 1


def test_a_batch_is_decoded_only_as_far_as_the_answer_goes() -> None:
    """The first page of 64 MiB costs a few of them, and each page ends inside the batch."""
    value = b'"%b"' % (b"x" * 1_000)
    batch = build_batch([(1, None, value, ())] * 63_000, codec=Codec.ZSTD)
    budget = DecodeBudget(DecodeLimits(64 * MEBIBYTE, INT64_MAX))
    view = View(start=0, max_answer_bytes=MEBIBYTE, limit_bytes=64 * MEBIBYTE, budget=budget)
    rendered = render_records(batch, view)
    assert 800 < rendered.count < 1_000
    assert rendered.next_offset == rendered.count
    assert 64 * MEBIBYTE - budget.left_bytes <= 3 * MEBIBYTE


def test_records_of_many_headers_become_objects_a_few_at_a_time() -> None:
    """Sixty records of 50,000 empty headers each are half a gigabyte, were they made at once."""
    headers = [("", None)] * 50_000
    batch = build_batch([(1, None, b"1", headers)] * 60, codec=Codec.ZSTD)
    view = View(start=0, max_answer_bytes=6 * MEBIBYTE, limit_bytes=12 * MEBIBYTE)
    tracemalloc.start()
    try:
        rendered = render_records(batch, view)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rendered.count == rendered.next_offset
    assert 1 <= rendered.count < 4
    assert peak_bytes < 60 * MEBIBYTE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_reader_always_gets_on_however_small_its_budget(codec: Codec) -> None:
    """A spent budget ends an answer, of bytes or of time; the first batch is always shown."""
    one = build_batch([(1, None, b"x" * 1_000, ())] * 10, codec=codec)
    data = b"".join(bytes(_at(one, 10 * n)) for n in range(5))
    ticks = ticking()
    for limits, bound in (
        (DecodeLimits(15_000, INT64_MAX), "max_decoded_bytes"),
        (DecodeLimits(INT64_MAX, 0), "max_decode_cpu_ms"),
    ):
        start = 0
        pages = []
        while start < 50:
            budget = DecodeBudget(limits, cpu_ns=lambda: next(ticks) * 1_000_000)
            rendered = render_records(data, View(start=start, budget=budget))
            pages.append(rendered.count)
            assert rendered.count
            assert rendered.stopped_by in ("", bound)
            start = 50 if rendered.next_offset is None else rendered.next_offset
        assert sum(pages) == 50
        assert len(pages) > 1
        spent = DecodeBudget(DecodeLimits(0, 0))
        nothing = render_records(data, View(start=3, budget=spent, minimum_one=False))
        assert (nothing.count, nothing.next_offset) == (0, 3)


def _at(batch: bytearray, base_offset: int) -> bytearray:
    return bytearray(base_offset.to_bytes(8, "big") + batch[8:])


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


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_of_several_parts_is_shown_from_any_place(codec: Codec) -> None:
    """Parts before the start are passed over, whether or not compaction left gaps in the batch."""
    count = 40_000
    value = b"x" * 60
    whole = build_batch([(1, None, value, ())] * count, codec=codec, base_offset=5)
    header = parse_header(whole)
    gappy = encode_batch(
        header,
        [Record(5 + n, 1, None, value, ()) for n in range(count) if n % 3],
    )
    for batch, step in ((whole, 1), (gappy, 3)):
        for start in (5, 20_000, 5 + count - step):
            rendered = render_records(batch, View(start=start, max_records=5, limit_bytes=1 << 30))
            offsets = [record["offset"] for record in json.loads(rendered.text)]
            wanted = [n for n in range(start, start + 9) if step == 1 or (n - 5) % 3]
            assert offsets == [n for n in wanted if n < 5 + count][:5]


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_compaction_emptied_shows_nothing(codec: Codec) -> None:
    """Its header keeps the codec of what is gone; there is nothing to decompress."""
    batch = build_batch([(1, None, b"x", ())], codec=codec)
    empty = encode_batch(parse_header(batch), [])
    assert page(empty, View(start=0)) == []


def test_damage_in_a_large_batch_is_met_where_it_is() -> None:
    """The records before it are shown; what has no length is read by the referee, who names it."""
    good = [encode_record(n, 0, None, b"x" * 100) for n in range(30_000)]
    for wrong in (b"\xff" * 6, b"\x81\x01", b"\x10" + bytes(8)):
        payload = b"".join((*good[:15_000], wrong, *good[15_000:]))
        plain = bytes(build_batch([(1, None, b"", ())] * 30_000))
        for codec in (Codec.NONE, Codec.ZSTD):
            data = reframed(plain, payload=compress(codec, payload), codec=codec)
            view = View(start=0, max_records=14_000, limit_bytes=1 << 30)
            assert render_records(data, view).count == 14_000
            cut = render_records(data, replace(view, max_records=16_000))
            assert cut.next_offset is not None
            assert (cut.stopped_by, cut.count) == ("damage", cut.next_offset)
            assert cut.count <= 15_000
            with pytest.raises(StoredDataCorrupt, match="offset 0"):
                render_records(data, replace(view, start=cut.next_offset))
