"""Stored batches to JSON: every kind of field, every bound, and damage."""

import base64
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.translate.records_out import View, render_records
from engine.errors import StoredDataCorrupt
from engine.records.builder import NewRecord, build_batch
from engine.records.header import CRC_POSITION, Codec
from tests.support.legacy import legacy_message, legacy_wrapper

ALL = View(start=0)


def shown(records: Iterable[NewRecord], view: View = ALL) -> list[dict[str, object]]:
    return [json.loads(line) for line in render_records(build_batch(records), view).records]


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


def test_ndjson_keeps_to_its_line() -> None:
    """Line breaks in stored JSON, in keys, values and headers, become spaces."""
    record: NewRecord = (1, b"[1,\n2]", b"{\n}", [("h", b"[\n]")])
    view = View(start=0, encoding="json", is_ndjson=True)
    (line,) = render_records(build_batch([record]), view).records
    assert b"\n" not in line
    assert json.loads(line)["key"] == [1, 2]
    assert json.loads(line)["headers"] == [{"key": "h", "value": [], "encoding": "json"}]


def test_bounds_say_where_to_go_on() -> None:
    """A bound inside a batch ends the answer there, by records, by bytes, by offset."""
    batch = build_batch([(1, None, b"1", ())] * 10)
    for view, count, next_offset in (
        (View(start=2, max_records=3), 3, 5),
        (View(start=0, max_answer_bytes=1), 1, 1),
        (View(start=4, end=6), 2, 6),
        (View(start=10), 0, None),
        (ALL, 10, None),
    ):
        rendered = render_records(batch, view)
        assert (len(rendered.records), rendered.next_offset) == (count, next_offset)


def test_messages_of_old_formats_are_shown_as_records() -> None:
    """Those in a wrapper one by one, from the offset asked for; they have no leader epoch."""
    data = legacy_message(3, b"k", b"1", magic=0) + legacy_wrapper(4, [b"2", b"3"], timestamp=7)
    lines = render_records(data, View(start=3, limit_bytes=1000)).records
    keys = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")
    assert [tuple(json.loads(line)[key] for key in keys) for line in lines] == [
        (3, -1, "create", "k", 1, [], -1),
        (4, 7, "create", "key", 2, [], -1),
        (5, 8, "create", "key", 3, [], -1),
    ]
    assert render_records(data, View(start=5, limit_bytes=1000)).records == lines[2:]
    assert render_records(data, View(start=3, max_records=2, limit_bytes=1000)).next_offset == 5


def test_many_keys_do_not_fill_the_memory() -> None:
    """Keys beyond those that are remembered are shown all the same."""
    records = [(1, b"%d" % number, b"1", ()) for number in range(2_000)]
    assert [record["key"] for record in shown(records)] == [str(n) for n in range(2_000)]


def test_damage_is_never_shown() -> None:
    """A batch whose checksum or compressed bytes are wrong is reported with its offset."""
    for codec in (Codec.NONE, Codec.GZIP):
        batch = build_batch([(1, None, b"x" * 100, ())], codec=codec, base_offset=7)
        batch[CRC_POSITION] ^= 1
        with pytest.raises(StoredDataCorrupt) as found:
            render_records(batch, ALL)
        assert found.value.facts()["offset"] == 7
