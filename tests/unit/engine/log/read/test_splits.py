"""A range of offsets is cut into parts of about equal bytes, on the boundaries of batches."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import OffsetBelowLogStart, OffsetBeyondLogEnd
from engine.index.offset import ENTRY
from engine.log.log import Log
from engine.log.read.extent import Split
from engine.records.header import BatchHeader
from engine.types import AppendOrigin, FetchIsolation
from tests.support.builders import World
from tests.support.damage import rewrite
from tests.support.logs import CONFIG, append_values, fill, log_path, read_headers, with_config
from tests.support.segments import batch_at


def log_of(batches: list[tuple[int, int]], rolls: set[int]) -> Log:
    """A log whose batches have these gaps before them and sizes, in segments that begin so."""
    log = World().open_log(CONFIG)
    offset = 0
    for number, (gap, size) in enumerate(batches):
        if number in rolls:
            log.roll()
        offset += gap
        values = [b"v"] * (1 + size % 3)
        values[0] = b"x" * size
        log.append(batch_at(offset, *values), origin=AppendOrigin.REPLICATION)
        offset += len(values)
    log.durability.commit()
    return log


def bytes_of(headers: list[BatchHeader], start: int, end: int) -> int:
    """The bytes that a reader of the range gets: all batches that hold one of its offsets."""
    return sum(
        header.size_bytes
        for header in headers
        if header.last_offset >= start and header.base_offset < end
    )


def ensure_tiled(splits: list[Split], start: int, end: int) -> None:
    """Fail unless the parts are the range: in order, none empty, no gap, no overlap."""
    if start == end:
        assert splits == []
        return
    assert (splits[0].start_offset, splits[-1].end_offset) == (start, end)
    assert all(split.start_offset < split.end_offset for split in splits)
    assert all(one.end_offset == two.start_offset for one, two in pairwise(splits))


@given(
    st.lists(st.tuples(st.sampled_from([0, 0, 0, 3]), st.integers(1, 400)), max_size=25),
    st.sets(st.integers(1, 25)),
    st.tuples(st.integers(0, 120), st.integers(0, 120)),
    st.integers(1, 8),
    st.none() | st.integers(1, 9),
)
@example([(0, 400)], set(), (0, 120), 8, 1)
@example([(0, 1), (3, 1)], {1}, (1, 4), 3, 1)
def test_parts_are_the_range_cut_between_batches(
    batches: list[tuple[int, int]],
    rolls: set[int],
    ends: tuple[int, int],
    parts: int,
    max_offsets: int | None,
) -> None:
    """In any log, a simple scan over all batches agrees with every number."""
    log = log_of(batches, rolls)
    start, end = sorted(min(offset, log.watermarks.high_watermark) for offset in ends)
    headers = read_headers(log, 0)
    splits = log.reader.splits(start, end, parts=parts, max_offsets=max_offsets)
    ensure_tiled(splits, start, end)
    assert log.reader.extent_bytes(start, end) == bytes_of(headers, start, end)
    for split in splits:
        assert split.size_bytes == bytes_of(headers, split.start_offset, split.end_offset)
    for cut in (split.end_offset for split in splits[:-1]):
        assert not any(header.base_offset < cut <= header.last_offset for header in headers)
    if max_offsets is None:
        assert len(splits) <= parts
        return
    for split in splits:
        inside = [h for h in headers if h.last_offset >= split.start_offset]
        is_one_batch = inside and inside[0].last_offset + 1 >= split.end_offset
        assert split.end_offset - split.start_offset <= max_offsets or is_one_batch


def test_parts_have_about_equal_bytes() -> None:
    """Records of very different size: each part is within a batch of its share."""
    log = World().open_log(CONFIG)
    for number in range(60):
        append_values(log, b"x" * (10 if number % 2 else 500))
        if number % 25 == 24:
            log.roll()
    log.durability.commit()
    largest = max(header.size_bytes for header in read_headers(log))
    for parts in (2, 3, 7):
        splits = log.reader.splits(0, 60, parts=parts)
        assert len(splits) == parts
        share = log.reader.size_bytes / parts
        assert all(abs(split.size_bytes - share) <= largest for split in splits)


def test_one_huge_batch_spoils_only_its_part() -> None:
    """What follows a batch larger than a part is shared out among the parts that are left."""
    log = World().open_log(CONFIG)
    append_values(log, b"x" * 20_000)
    fill(log, batches=30, first=1)
    log.durability.commit()
    splits = log.reader.splits(0, 31, parts=4)
    assert splits[0].end_offset == 1
    sizes = [split.size_bytes for split in splits[1:]]
    assert len(sizes) == 3
    assert max(sizes) - min(sizes) <= 2 * sizes[0] // 9


@pytest.mark.parametrize(("first_bytes", "end"), [(2_000, 2), (3_000, 1)])
def test_a_cut_is_made_where_a_batch_ends_nearest(first_bytes: int, end: int) -> None:
    """The middle is in the second batch, which goes to the part that it makes less uneven."""
    log = World().open_log(CONFIG)
    for size in (first_bytes, 6_000, 5_000 - first_bytes):
        append_values(log, b"x" * size)
    log.durability.commit()
    assert [split.end_offset for split in log.reader.splits(0, 3, parts=2)] == [end, 3]


@pytest.mark.parametrize(
    ("max_offsets", "ends"),
    [
        (1, [3, 6, 9, 10]),
        (3, [3, 6, 9, 10]),
        (4, [3, 6, 10]),
        (7, [6, 10]),
        (9, [9, 10]),
        (10, [10]),
    ],
)
def test_no_part_spans_more_offsets_than_asked_for(max_offsets: int, ends: list[int]) -> None:
    """Parts end with the last batch that fits, and hold one batch if none does."""
    log = World().open_log(CONFIG)
    fill(log, batches=4, records=3)
    log.durability.commit()
    assert [split.end_offset for split in log.reader.splits(0, 10, max_offsets=max_offsets)] == ends


def test_a_gap_at_the_end_belongs_to_the_range() -> None:
    """If a truncation removed a whole batch, the log ends after its last one: no offset is lost."""
    log = World().open_log(CONFIG)
    fill(log, batches=2, records=4)
    log.durability.commit()
    log.truncate_to(7)
    assert [split[:2] for split in log.reader.splits(0, 7, parts=3)] == [(0, 4), (4, 7)]
    assert [split[:2] for split in log.reader.splits(2, 7, max_offsets=2)] == [
        (2, 4),
        (4, 6),
        (6, 7),
    ]
    assert log.reader.extent_bytes(4, 7) == 0


def bytes_read_for_a_plan(batches: int) -> int:
    """The bytes read to plan four parts of a log with that many batches."""
    log = World().open_log(with_config(segment_index_bytes=64_000))
    fill(log, batches=batches)
    log.durability.commit()
    (segment,) = log.reader.segments
    file = segment.records.file
    read_at = file.read_at
    lengths: list[int] = []

    def counting(position: int, length: int) -> bytes:
        lengths.append(min(length, file.size_bytes - position))
        return read_at(position, length)

    file.read_at = counting  # type: ignore[method-assign]  # to see the requests
    assert len(log.reader.splits(0, batches, parts=4)) == 4
    return sum(lengths)


def test_a_plan_reads_indexes_and_little_else() -> None:
    """The bytes read for a cut do not grow with the log: an index interval, as for a look-up."""
    assert bytes_read_for_a_plan(1_000) <= bytes_read_for_a_plan(250) + 4096 <= 8 * 4096


def test_only_what_can_be_read_is_planned() -> None:
    """Offsets below the log start, above the high watermark and beyond the end differ."""
    log = World().open_log(CONFIG)
    fill(log, batches=10)
    log.durability.commit()
    fill(log, batches=2, first=10)
    log.delete_records(3)
    with pytest.raises(OffsetBelowLogStart):
        log.reader.splits(2, 5)
    for end in (11, 13):
        with pytest.raises(OffsetBeyondLogEnd) as beyond:
            log.reader.splits(3, end)
        assert beyond.value.facts()["high_watermark"] == 10
    assert [split[:2] for split in log.reader.splits(3, 10)] == [(3, 10)]
    assert log.reader.splits(10, 10) == []


def test_a_committed_reader_s_plan_ends_at_the_stable_offset() -> None:
    """An open transaction is not planned; everything before it is."""
    log = World().open_log(CONFIG)
    fill(log, batches=4)
    options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    append_values(log, b"open", is_transactional=True, **options)
    fill(log, batches=4, first=5)
    log.durability.commit()
    committed = FetchIsolation.TXN_COMMITTED
    splits = log.reader.splits(0, 4, committed, parts=2)
    ensure_tiled(splits, 0, 4)
    assert sum(split.size_bytes for split in splits) == log.reader.extent_bytes(0, 4)
    with pytest.raises(OffsetBeyondLogEnd):
        log.reader.splits(0, 5, committed)


def test_a_wrong_index_is_rebuilt_first() -> None:
    """Cuts are at batch starts even if the index on disk is wrong."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=60)
    log.durability.commit()
    expected = log.reader.splits(0, 60, parts=5)
    log.close()
    world.restart(power_cut=False)
    index = log_path(suffix=".index")
    entries = list(ENTRY.iter_unpack(world.disk.read_bytes(index)))
    rewrite(world.disk, index, b"".join(ENTRY.pack(one, two + 1) for one, two in entries))
    again = world.open_log(CONFIG, was_clean=True)
    assert again.reader.splits(0, 60, parts=5) == expected


def test_an_entry_that_only_a_cut_uses_is_rebuilt_too() -> None:
    """The index is right at both ends of the range, and wrong at a cut."""
    world = World()
    log = world.open_log(CONFIG)
    fill(log, batches=60)
    log.durability.commit()
    expected = log.reader.splits(0, 58, parts=2)
    half_bytes = sum(split.size_bytes for split in expected) // 2
    middle = log.reader.segments[0].indexes.offset.floor_by_position(half_bytes)
    assert middle.position < half_bytes
    log.close()
    world.restart(power_cut=False)
    index = log_path(suffix=".index")
    content = world.disk.read_bytes(index)
    right, wrong = ENTRY.pack(*middle), ENTRY.pack(middle.offset, middle.position + 1)
    assert content.count(right) == 1
    rewrite(world.disk, index, content.replace(right, wrong))
    again = world.open_log(CONFIG, was_clean=True)
    assert again.reader.splits(0, 58, parts=2) == expected
