"""Texts of batches that several readers share: the same bytes, and never those of another."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.codecs.records_out import Rendered, render_records
from app.codecs.stored import (
    ENTRY_BYTES,
    MOST_SHARE,
    BatchKey,
    LogTexts,
    RenderedBatches,
    View,
)
from app.errors import RecordTooLarge
from engine.errors import StoredDataCorrupt
from engine.records.builder import build_batch, encode_batch
from engine.records.header import Codec, TimestampType, parse_header
from engine.records.record import Record
from engine.types import INT64_MAX, Buffer

MEBIBYTE = 1 << 20
ALL = View(start=0)

FIELDS = st.none() | st.binary(max_size=40) | st.sampled_from([b"1", b"null", b'{"a":"\xc3\xbc"}'])
ROWS = st.tuples(FIELDS, FIELDS, st.lists(st.tuples(st.text(max_size=3), FIELDS), max_size=2))


def keeping(max_bytes: int = MEBIBYTE) -> LogTexts:
    return LogTexts(RenderedBatches(max_bytes), "log")


def read(data: Buffer, view: View, texts: LogTexts) -> Rendered:
    return render_records(data, replace(view, texts=texts))


def kept_of(data: Buffer, texts: LogTexts, view: View = ALL) -> bytearray:
    """Read twice, so that the text is kept, and return what the second read showed."""
    read(data, view, texts)
    return read(data, view, texts).text


def outcome(data: Buffer, view: View) -> object:
    try:
        return render_records(data, view)
    except RecordTooLarge as error:
        return error.facts()


@given(
    st.lists(st.lists(ROWS, min_size=1, max_size=5), min_size=1, max_size=4),
    st.sampled_from(Codec),
    st.lists(
        st.builds(
            View,
            start=st.integers(0, 12),
            end=st.just(INT64_MAX) | st.integers(0, 15),
            max_records=st.just(INT64_MAX) | st.integers(1, 12),
            max_answer_bytes=st.just(INT64_MAX) | st.integers(1, 2_000),
            encoding=st.sampled_from([None, "json", "utf8", "base64"]),
            offsets_as_text=st.booleans(),
            is_ndjson=st.booleans(),
            limit_bytes=st.just(MEBIBYTE),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_every_page_is_what_it_is_without_kept_texts(
    batches: list[list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]],
    codec: Codec,
    views: list[View],
) -> None:
    """Whatever was read before, from wherever and in whichever form, each page has its bytes."""
    data, offset = bytearray(), 0
    for rows in batches:
        records = [(1, *row) for row in rows]
        data += build_batch(records, base_offset=offset, codec=codec, leader_epoch=4)
        offset += len(rows)
    texts = keeping()
    for view in views * 3:
        assert outcome(data, replace(view, texts=texts)) == outcome(data, view)


def test_a_text_is_kept_when_it_is_made_for_the_second_time() -> None:
    """A reader that reads a log once leaves nothing in memory."""
    texts, data = keeping(), build_batch([(1, None, b"1", ())] * 10)
    read(data, ALL, texts)
    assert texts.rendered.size_bytes == 0
    read(data, ALL, texts)
    assert texts.rendered.size_bytes > 0


@pytest.mark.parametrize("is_ndjson", [False, True])
def test_a_kept_text_is_shown_without_decoding(*, is_ndjson: bool) -> None:
    """It is found by the header alone, between other batches as well."""
    view = replace(ALL, is_ndjson=is_ndjson)
    one, two, three = (build_batch([(1, None, b"%d" % n, ())], base_offset=n) for n in range(3))
    texts = keeping()
    shown = kept_of(one + two + three, texts, view)
    header = bytes(two[:61])
    key: BatchKey = ("log", header, None, False, is_ndjson)
    kept = texts.rendered.get(key)
    assert kept is not None
    assert kept[1:] in shown
    forged = RenderedBatches(MEBIBYTE)
    forged.put(key, kept.replace(b'"value":1', b'"value":7'))
    other = read(one + two + three, view, LogTexts(forged, "log")).text
    assert other == shown.replace(b'"value":1', b'"value":7')


def test_a_flipped_bit_is_found_although_the_text_is_kept() -> None:
    """The checksum is verified at every read: what is kept does not hide damage."""
    texts, data = keeping(), build_batch([(1, b"k", b'"value"', ())] * 3)
    kept_of(data, texts)
    for position in (21, 40, 61, len(data) - 1):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(StoredDataCorrupt):
            read(damaged, ALL, texts)


def test_other_logs_offsets_epochs_and_types_have_texts_of_their_own() -> None:
    """The checksum does not cover base offset and leader epoch; the key has the whole header."""
    rows = [(5, b"k", b"1", ())] * 3
    texts = keeping()
    kept_of(build_batch(rows, base_offset=3, leader_epoch=1), texts)
    others = [
        build_batch(rows, base_offset=4, leader_epoch=1),
        build_batch(rows, base_offset=3, leader_epoch=2),
        build_batch(
            rows, base_offset=3, leader_epoch=1, timestamp_type=TimestampType.LOG_APPEND_TIME
        ),
        build_batch([(5, b"k", b"2", ())] * 3, base_offset=3, leader_epoch=1),
    ]
    for other in others:
        assert read(other, ALL, texts) == render_records(other, ALL)
    forged = RenderedBatches(MEBIBYTE)
    batch = build_batch(rows)
    forged.put(("log", bytes(batch[:61]), None, False, False), b",{}")
    assert read(batch, ALL, LogTexts(forged, "another log")) == render_records(batch, ALL)


def test_a_compacted_batch_counts_the_records_that_it_has() -> None:
    """Offsets have gaps: three records between 10 and 19."""
    records = [Record(offset, 1, b"k", b"1", ()) for offset in (11, 13, 17)]
    header = parse_header(build_batch([(1, None, None, ())] * 10, base_offset=10))
    gapped = encode_batch(header, records)
    follows = build_batch([(1, None, b"2", ())] * 2, base_offset=20)
    texts = keeping()
    for view in (ALL, replace(ALL, max_records=3), replace(ALL, max_records=4)):
        for _ in range(3):
            assert read(gapped + follows, view, texts) == render_records(gapped + follows, view)
    emptied = encode_batch(header, [])
    for _ in range(3):
        assert read(emptied, ALL, texts).text == b"[]"


def key_of(number: int) -> BatchKey:
    return ("log", b"%d" % number, None, False, False)


def test_texts_never_take_more_than_their_memory() -> None:
    """The least recently used go first, and each counts with what it takes besides its text."""
    entry_bytes = ENTRY_BYTES + 100
    kept = RenderedBatches(10 * entry_bytes)
    for number in range(10):
        kept.put(key_of(number), b"x" * 100)
        assert kept.size_bytes == (number + 1) * entry_bytes
    assert kept.get(key_of(0)) is not None
    kept.put(key_of(10), b"x" * 101)  # a byte too many for one to go
    assert kept.size_bytes == 9 * entry_bytes + 1
    assert [n for n in range(11) if kept.get(key_of(n))] == [0, 3, 4, 5, 6, 7, 8, 9, 10]
    kept.put(key_of(0), b"y")
    assert kept.get(key_of(0)) == b"x" * 100, "the first of two readers has put it"


def test_a_large_text_is_not_wanted() -> None:
    """One batch of megabytes would displace all others; 0 bytes keep nothing at all."""
    kept = RenderedBatches(MEBIBYTE)
    largest = MEBIBYTE // MOST_SHARE - ENTRY_BYTES
    assert [kept.is_wanted(key_of(1), largest) for _ in range(2)] == [False, True]
    assert not any(kept.is_wanted(key_of(2), largest + 1) for _ in range(2))
    assert not any(RenderedBatches(0).is_wanted(key_of(3), 1) for _ in range(2))


def test_a_reader_of_more_than_can_be_kept_displaces_nothing() -> None:
    """It comes back to a batch only after it has read more than there is memory for."""
    kept = RenderedBatches(100 * (ENTRY_BYTES + 100))
    for _ in range(3):
        assert not any(kept.is_wanted(key_of(number), 100) for number in range(150))
    assert not any(kept.is_wanted(key_of(number), 100) for number in range(200, 250))
    assert all(kept.is_wanted(key_of(number), 100) for number in range(200, 250))
