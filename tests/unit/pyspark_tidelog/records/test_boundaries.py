"""Where records lie: many batches abreast against each batch alone, and what neither believes."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_tidelog.records.batches import whole_batches
from pyspark_tidelog.records.fields import find_records
from pyspark_tidelog.records.varints import RecordError
from tests.support.kafka_batches import HEADER_BYTES, SentRecord, encode, numbered, reframed

BATCHES = 40  # as many are walked abreast
RECORDS_COUNT_POSITION = 57

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# Lengths of one, two and three octets, and every octet that a length could be confused with.
contents = st.none() | st.binary(max_size=90) | st.sampled_from([b"\0" * 60, b"z" * 9_000])
sent_records = st.builds(
    SentRecord,
    timestamp=st.integers(0, 1 << 42),
    key=contents,
    value=contents,
    headers=st.lists(st.tuples(texts, contents), max_size=2).map(tuple),
)
Places = tuple[list[int], list[int]]


def found_in(data: bytes) -> Places:
    """Return where the records of all batches begin and end, found in one go."""
    frames = whole_batches(data)
    payloads = [(frame.payload_position, frame.end_position) for frame in frames]
    begins, ends = find_records(data, frames, payloads)
    return begins.tolist(), ends.tolist()


def found_one_by_one(batches: list[bytes]) -> Places:
    """Return the same, found in each batch alone."""
    begins: list[int] = []
    ends: list[int] = []
    position = 0
    for batch in batches:
        own_begins, own_ends = found_in(batch)
        begins += [position + begin for begin in own_begins]
        ends += [position + end for end in own_ends]
        position += len(batch)
    return begins, ends


def repeated(batch: bytes, times: int) -> bytes:
    """Return the batch again and again, with offsets that rise."""
    return b"".join(struct.pack(">q", 10 * number) + batch[8:] for number in range(times))


def encoded(batches: list[list[SentRecord]]) -> list[bytes]:
    offset, data = 0, []
    for records in batches:
        data.append(encode(records, base_offset=offset))
        offset += len(records)
    return data


@settings(max_examples=40)
@given(
    st.lists(st.lists(sent_records, min_size=1, max_size=4), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_batches_abreast_have_the_places_of_batches_alone(
    shapes: list[list[SentRecord]], chance: random.Random
) -> None:
    """Whatever records hold and however many a batch has, walking together changes nothing."""
    batches = encoded([chance.choice(shapes) for _ in range(BATCHES)])
    assert found_in(b"".join(batches)) == found_one_by_one(batches)


def test_a_long_batch_among_many_short_ones_takes_no_room_for_all_of_them() -> None:
    """Very different batches are walked one by one, to the same end."""
    batches = encoded([numbered(1)] * 200 + [numbered(5_000)])
    assert found_in(b"".join(batches)) == found_one_by_one(batches)


@settings(max_examples=100)
@given(st.data())
def test_damage_in_one_of_many_batches_is_found_or_harmless(data: st.DataObject) -> None:
    """Abreast, wrong bytes are an error exactly where they are one to the batch alone."""
    batches = [bytearray(batch) for batch in encoded([numbered(3, size_bytes=80)] * BATCHES)]
    damaged = batches[data.draw(st.integers(0, BATCHES - 1))]
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(HEADER_BYTES, len(damaged) - 1))
        damaged[position] = data.draw(st.sampled_from([0, 1, 12, 127, 128, 255]))
    whole = [bytes(batch) for batch in batches]
    try:
        expected = found_one_by_one(whole)
    except (RecordError, IndexError):
        with pytest.raises((RecordError, IndexError)):
            found_in(b"".join(whole))
    else:
        assert found_in(b"".join(whole)) == expected


@pytest.mark.parametrize("batches", [1, BATCHES])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_count_that_is_wrong_is_an_error(batches: int, count: int) -> None:
    """Neither way believes a header that counts fewer or more records than there are."""
    wrong = bytearray(encode(numbered(2)))
    struct.pack_into(">i", wrong, RECORDS_COUNT_POSITION, count)
    with pytest.raises((RecordError, IndexError)):
        found_in(bytes(wrong) + b"".join(encoded([numbered(2)] * batches)[1:]))


def test_a_count_beyond_all_room_is_refused_before_room_is_made() -> None:
    """Headers that claim two thousand million records each cost no memory."""
    batch = bytearray(encode(numbered(2)))
    struct.pack_into(">i", batch, RECORDS_COUNT_POSITION, (1 << 31) - 1)
    with pytest.raises(RecordError, match="2 records where the header says 2147483647"):
        found_in(repeated(bytes(batch), BATCHES))


@pytest.mark.parametrize("batches", [1, BATCHES])
def test_a_negative_length_is_an_error(batches: int) -> None:
    """The sign of a length is a bit of its first octet, and is looked at on either way."""
    batch = reframed(encode(numbered(1)), payload=bytes([13, 0, 0, 0, 1, 0, 0]))
    with pytest.raises((RecordError, IndexError)):
        found_in(repeated(batch, batches))


@pytest.mark.parametrize("batches", [1, BATCHES])
@pytest.mark.parametrize("length", [b"\x0c", b"\x8c\x00", b"\x8c\x80\x00"], ids=len)
def test_a_length_may_have_more_octets_than_it_needs(batches: int, length: bytes) -> None:
    """A record begins after its length as it was written, not as it might have been."""
    payload = length + bytes([0, 0, 0, 1, 0, 0])
    data = repeated(reframed(encode(numbered(1)), payload=payload), batches)
    begins, ends = found_in(data)
    assert [end - begin for begin, end in zip(begins, ends, strict=True)] == [6] * batches
    assert all(data[begin - len(length) : begin] == length for begin in begins)
