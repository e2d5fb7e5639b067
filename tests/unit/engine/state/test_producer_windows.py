"""The file of duplicate windows: its content, when it is used, and detection of damage."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import CorruptSnapshot
from engine.state.producer_entry import BatchMetadata, ProducerEntry
from engine.state.producer_table import (
    BATCH,
    HEADER,
    decode_windows,
    encode_windows,
    with_windows,
)


def batch(number: int) -> BatchMetadata:
    return BatchMetadata(number, 10 + number, 0, 1000 + number)


def entry(*numbers: int, producer_id: int = 7, epoch: int = 3) -> ProducerEntry:
    return ProducerEntry(producer_id, epoch, batches=tuple(map(batch, numbers)))


def test_the_bytes_are_as_the_page_says() -> None:
    """Each field is where docs/formats/producer-snapshot.md has it."""
    content = encode_windows([entry(4, 5), entry(1, producer_id=8)])
    assert content[:2] == b"\x00\x01"
    assert content[6:10] == b"\x00\x00\x00\x02"
    assert (HEADER.size, BATCH.size, len(content)) == (10, 34, 78)
    assert BATCH.unpack_from(content, 10) == (7, 3, 4, 14, 0, 1004)


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1)),
        st.integers(2, 5),
        max_size=6,
    )
)
def test_what_is_written_is_read(counts: dict[tuple[int, int], int]) -> None:
    """Every producer with several batches has them again, in their order."""
    entries = [
        entry(*range(count), producer_id=producer_id, epoch=epoch)
        for (producer_id, epoch), count in counts.items()
    ]
    content = encode_windows(entries)
    windows = decode_windows(content) if content else {}
    assert windows == {key: [*map(batch, range(count))] for key, count in counts.items()}


def test_without_anything_to_tell_there_are_no_bytes() -> None:
    """The one batch of a producer is in the snapshot."""
    assert encode_windows([entry(1), entry()]) == b""


def test_every_damaged_byte_is_found() -> None:
    """A wrong window could make a new batch look like a retry."""
    content = encode_windows([entry(4, 5)])
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1
        with pytest.raises(CorruptSnapshot):
            decode_windows(bytes(damaged))
    for size in range(len(content)):
        with pytest.raises(CorruptSnapshot):
            decode_windows(content[:size])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_count_that_does_not_fit_is_found(count: int) -> None:
    """The checksum covers the count, so only another writer can have got it wrong."""
    checked = count.to_bytes(4, "big") + encode_windows([entry(4, 5)])[HEADER.size :]
    content = (1).to_bytes(2, "big") + crc32c(checked).to_bytes(4, "big") + checked
    with pytest.raises(CorruptSnapshot, match=f"{count} batches do not fit"):
        decode_windows(content)


@pytest.mark.parametrize(
    ("snapshot", "known"),
    [
        (entry(5), (1, 2, 3, 4, 5)),  # of the same moment
        (entry(3), (1, 2, 3)),  # of an older one: the rest is read from the log
        (entry(6), (6,)),  # of a newer one, whose batches are not in the file
        (entry(5, epoch=4), (5,)),
        (entry(5, producer_id=8), (5,)),
        (entry(), ()),
    ],
    ids=["same", "older", "newer", "another epoch", "another producer", "no batch"],
)
def test_a_window_is_used_if_the_snapshots_batch_is_in_it(
    snapshot: ProducerEntry, known: tuple[int, ...]
) -> None:
    """Then both have one history; the rest of the snapshot is unchanged."""
    windows = decode_windows(encode_windows([entry(1, 2, 3, 4, 5)]))
    assert with_windows(snapshot, windows).batches == tuple(map(batch, known))


def test_a_snapshots_time_may_be_that_of_a_marker() -> None:
    """The batch is the same, and its own time is in the window."""
    windows = decode_windows(encode_windows([entry(1, 2)]))
    marked = entry(2)._replace(batches=(batch(2)._replace(timestamp=5000),))
    assert with_windows(marked, windows).batches == (batch(1), batch(2))
