"""The result of a read: whole batches, within the budget and the bounds, at any offset."""

import struct
from bisect import bisect_right

import pytest

from engine.errors import OffsetBelowLogStart, OffsetBeyondLogEnd, StoredDataCorrupt
from engine.log.log import Log
from engine.log.read.fetch import ReadRequest, fetch
from engine.log.results import ReadEnd
from engine.records.header import Codec
from engine.records.scan import iter_headers
from engine.state.watermarks import Watermarks
from engine.types import AppendOrigin, FetchIsolation, OffsetMetadata
from tests.support.builders import World
from tests.support.kafka import kafka
from tests.support.logs import (
    ALL_BYTES,
    CONFIG,
    append_values,
    batches_in,
    fill,
    fill_segments,
    log_path,
    read_values,
    with_config,
)
from tests.support.segments import batch_at


def committed(*segment_sizes: int, world: World | None = None) -> Log:
    """A log with a number of one-record batches in each segment, all visible."""
    log = (world or World()).open_log(CONFIG)
    fill_segments(log, *segment_sizes)
    log.durability.commit()
    return log


def offsets_read(log: Log, offset: int, **options: object) -> list[int]:
    fetched = log.reader.read(offset, **{"max_bytes": ALL_BYTES, **options})  # type: ignore[arg-type]  # named by the test
    assert fetched is not None
    return [header.header.base_offset for header in batches_in(fetched.data)]


def test_a_read_goes_on_over_segments_while_its_budget_lasts() -> None:
    """One call may return the batches of several segments, with the next offset."""
    log = committed(3, 3, 3)
    fetched = log.reader.read(1, max_bytes=ALL_BYTES)
    assert fetched is not None
    assert (fetched.first_offset, fetched.next_offset) == (1, 9)
    assert fetched.ended_by is ReadEnd.LOG_BOUND
    assert fetched.watermarks == log.watermarks
    assert offsets_read(log, 1) == list(range(1, 9))


@kafka("UnifiedLogTest.testReadWithMinMessage")
def test_the_budget_is_kept_and_one_batch_always_comes() -> None:
    """No more bytes than requested, except for the first batch."""
    log = committed(4)
    size = log.reader.size_bytes // 4
    for max_bytes, count in ((0, 1), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2)):
        fetched = log.reader.read(0, max_bytes=max_bytes)
        assert fetched is not None
        assert (len(fetched.data), fetched.next_offset) == (count * size, count)
        assert fetched.ended_by is ReadEnd.MAX_BYTES


@kafka("UnifiedLogTest.testReadWithTooSmallMaxLength")
def test_without_the_minimum_a_small_budget_gets_nothing() -> None:
    """The result is empty and says why."""
    log = committed(2)
    fetched = log.reader.read(0, max_bytes=10, minimum_one_batch=False)
    assert fetched is not None
    assert (bytes(fetched.data), fetched.next_offset) == (b"", 0)
    assert (fetched.first_offset, fetched.ended_by) == (None, ReadEnd.MAX_BYTES)


@kafka("UnifiedLogTest.testCompressedMessages")
def test_an_offset_inside_a_batch_gets_the_batch() -> None:
    """The first batch may begin below the offset."""
    log = World().open_log(CONFIG)
    append_values(log, b"a", b"b", b"c", codec=Codec.GZIP)
    append_values(log, b"d")
    log.durability.commit()
    for offset in (0, 1, 2):
        fetched = log.reader.read(offset, max_bytes=1)
        assert fetched is not None
        assert (fetched.first_offset, fetched.next_offset) == (0, 3)
    assert read_values(log, 1) == [b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("end_offset", "expected", "ended_by"),
    [
        (2, [], ReadEnd.END_OFFSET),
        (3, [2], ReadEnd.END_OFFSET),
        (5, [2, 3, 4], ReadEnd.END_OFFSET),
        (6, [2, 3, 4, 5], ReadEnd.END_OFFSET),
        (9, [2, 3, 4, 5, 6, 7, 8], ReadEnd.END_OFFSET),
        (20, [2, 3, 4, 5, 6, 7, 8], ReadEnd.LOG_BOUND),
    ],
)
def test_a_read_may_have_an_end(end_offset: int, expected: list[int], ended_by: ReadEnd) -> None:
    """Batches that begin at or after the end are left out, across segments too."""
    log = committed(4, 3, 2)
    assert offsets_read(log, 2, end_offset=end_offset) == expected
    fetched = log.reader.read(2, max_bytes=ALL_BYTES, end_offset=end_offset)
    assert fetched is not None
    assert fetched.ended_by is ended_by


def test_a_batch_that_reaches_over_the_end_comes_whole() -> None:
    """A batch is never cut: the last one may hold offsets after the end."""
    log = World().open_log(CONFIG)
    for _ in range(3):
        append_values(log, b"a", b"b", b"c")
    log.durability.commit()
    fetched = log.reader.read(0, max_bytes=ALL_BYTES, end_offset=4)
    assert fetched is not None
    assert fetched.next_offset == 6
    first = log.reader.read(0, max_bytes=ALL_BYTES, end_offset=1)
    assert first is not None
    assert first.next_offset == 3


@kafka(
    "UnifiedLogTest.testReadOutOfRange",
    "UnifiedLogTest.testFetchUpToLogEndOffset",
    "UnifiedLogTest.testFetchUpToHighWatermark",
)
def test_reading_at_the_bounds_is_empty_and_beyond_is_an_error() -> None:
    """From high watermark to log end there is nothing yet."""
    log = committed(3)
    fill(log, batches=2, first=3)
    for offset in (3, 4, 5):
        fetched = log.reader.read(offset, max_bytes=ALL_BYTES)
        assert fetched is not None
        assert (bytes(fetched.data), fetched.next_offset) == (b"", offset)
    assert offsets_read(log, 3, isolation=FetchIsolation.LOG_END) == [3, 4]
    assert offsets_read(log, 5, isolation=FetchIsolation.LOG_END) == []
    with pytest.raises(OffsetBeyondLogEnd) as beyond:
        log.reader.read(6, max_bytes=1)
    assert beyond.value.facts() == {
        "offset": 6,
        "log_start_offset": 0,
        "high_watermark": 3,
        "last_stable_offset": 3,
        "log_end_offset": 5,
    }


@kafka("UnifiedLogTest.testReadOutOfRange")
def test_below_the_log_start_is_gone() -> None:
    """Even if the bytes are still there."""
    log = committed(4)
    log.delete_records(2)
    with pytest.raises(OffsetBelowLogStart) as gone:
        log.reader.read(1, max_bytes=1)
    assert gone.value.facts()["log_start_offset"] == 2
    assert read_values(log) == [b"000002", b"000003"]


@kafka("UnifiedLogTest.testHighWatermarkMetadataUpdatedAfterSegmentRoll")
def test_the_high_watermark_keeps_its_place_over_a_roll() -> None:
    """After commit, roll and append a read at the high watermark finds nothing new."""
    log = committed(3)
    log.roll()
    assert offsets_read(log, 3) == []
    fill(log, batches=1, first=3)
    assert offsets_read(log, 3) == []
    log.durability.commit()
    assert offsets_read(log, 3) == [3]


def followed(*offsets: int, segment_bytes: int = 1 << 20) -> Log:
    log = World().open_log(with_config(segment_bytes=segment_bytes))
    for offset in offsets:
        log.append(batch_at(offset), origin=AppendOrigin.REPLICATION)
    log.durability.commit()
    return log


@kafka("UnifiedLogTest.testReadAtLogGap")
def test_a_gap_at_the_end_of_a_segment_leads_into_the_next() -> None:
    """If the floor segment has nothing, the next one answers."""
    log = followed(0, 5, 20, 25, segment_bytes=160)
    assert log.reader.segments_count == 2
    assert offsets_read(log, 6) == [20, 25]
    assert offsets_read(log, 12, end_offset=15) == []


def test_nothing_between_the_offset_and_the_bound_moves_on() -> None:
    """If compaction removed everything that was left, the reader continues after it."""
    log = followed(0, 5, 20)
    log.roll()
    log.append(batch_at(40), origin=AppendOrigin.REPLICATION)
    log.truncate_to(30)
    log.durability.commit()
    fetched = log.reader.read(21, max_bytes=100)
    assert fetched is not None
    assert (bytes(fetched.data), fetched.next_offset) == (b"", 30)


def test_a_read_explains_its_path() -> None:
    """It returns the segment, the index entry and the bytes scanned from it."""
    log = World().open_log(CONFIG)
    fill(log, batches=50)
    log.roll()
    fill(log, batches=50, first=50)
    log.durability.commit()
    fetched = log.reader.read(90, max_bytes=1)
    assert fetched is not None
    path = fetched.path
    assert path is not None
    assert path.segment_base_offset == 50
    assert 50 < path.index_offset <= 90
    assert path.position == path.index_position + path.scanned_bytes
    assert path.scanned_bytes <= 2 * CONFIG.index_interval_bytes
    empty = log.reader.read(100, max_bytes=1)
    assert empty is not None
    assert empty.path is None


def test_a_cached_read_never_waits_for_the_disk() -> None:
    """It returns cached data or None; then the ordinary read returns it."""
    world = World()
    log = committed(2, 2, world=world)
    cached = log.reader.read(0, max_bytes=ALL_BYTES, cached_only=True)
    assert cached is not None
    assert cached.next_offset == 4
    world.disk.is_cached = False
    assert log.reader.read(0, max_bytes=1, cached_only=True) is None
    assert log.reader.read(0, max_bytes=1) is not None


def test_damage_is_never_returned() -> None:
    """Bytes that changed on disk since a restart are an error with place, never an answer."""
    world = World()
    log = committed(4, world=world)
    log.close()
    world.restart(power_cut=False)
    content = bytearray(world.disk.read_bytes(log_path()))
    content[len(content) // 2 + 20] ^= 1
    world.disk.remove(log_path())
    with world.disk.open(log_path(), create=True) as file:
        file.append(content)
    again = world.open_log(CONFIG, was_clean=True)
    assert offsets_read(again, 0, max_bytes=1) == [0]
    with pytest.raises(StoredDataCorrupt) as damage:
        again.reader.read(2, max_bytes=1)
    facts = damage.value.facts()
    assert (facts["file"], facts["offset"]) == (str(log_path()), 2)
    assert offsets_read(again, 0, max_bytes=ALL_BYTES) == [0, 1]
    cut = again.reader.read(0, max_bytes=ALL_BYTES)
    assert cut is not None
    assert (cut.ended_by, cut.next_offset) == (ReadEnd.DAMAGE, 2)
    assert offsets_read(again, 3) == [3]


@pytest.mark.parametrize("rolls_at", [None, 3])
@pytest.mark.parametrize("damaged", range(7))
def test_what_precedes_a_wrong_offset_is_returned(damaged: int, rolls_at: int | None) -> None:
    """No checksum covers a base offset: no wrong one is returned, and no intact batch held back.

    Where its neighbours do not tell which of two overlapping batches is wrong, the read ends before
    both of them.
    """
    world = World()
    log = world.open_log(CONFIG)
    for number, records in enumerate((1, 3, 2, 3, 1, 2, 3)):
        if number == rolls_at:
            log.roll()
        append_values(log, *[b"v"] * records)
    log.durability.commit()
    starts = [0, 1, 4, 6, 9, 10, 12, 15]
    in_first = rolls_at is None or damaged < rolls_at
    content = world.disk._inode(log_path(0 if in_first else 6)).content  # noqa: SLF001 - damage
    position = next(
        at for at, header in iter_headers(content) if header.base_offset == starts[damaged]
    )
    whole = log.reader.read(0, max_bytes=ALL_BYTES)
    assert whole is not None
    batches = [bytes(batch.buffer) for batch in batches_in(bytes(whole.data))]
    has_judge = damaged < 5 and (rolls_at is None or not rolls_at - 2 < damaged < rolls_at)
    sure = damaged if has_judge else damaged - 1
    for wrong in {*range(20), 1 << 40} - {starts[damaged]}:
        struct.pack_into(">q", content, position, wrong)
        for offset in range(starts[damaged + 1]):
            first = bisect_right(starts, offset) - 1
            for max_bytes in (1, 200, ALL_BYTES):
                try:
                    found = log.reader.read(offset, max_bytes=max_bytes)
                except StoredDataCorrupt:
                    assert first >= sure
                    continue
                assert found is not None
                count = len(list(batches_in(found.data)))
                assert bytes(found.data) == b"".join(batches[first : first + count])
                if max_bytes == ALL_BYTES:
                    assert first + count >= sure
                    assert found.ended_by is ReadEnd.DAMAGE


def test_a_reader_outlives_the_removal_of_its_segments() -> None:
    """A snapshot of segments stays readable until their files are removed, and after."""
    world = World()
    log = world.open_log(with_config(retention_bytes=0))
    fill_segments(log, 3, 3)
    log.durability.commit()
    segments = log._core.state.local.segments.snapshot.segments  # noqa: SLF001 - the reader's internals
    data = bytes(segments[0].read(0, segments[0].size_bytes)[0])
    log.maintenance.run_retention()
    world.scheduler.advance(CONFIG.file_delete_delay_ms)
    assert bytes(segments[0].read(0, len(data))[0]) == data


def test_reading_needs_no_writers_lock() -> None:
    """While a writer is inside the lock, a reader gets its answer."""
    log = committed(2)
    with log._core.lock:  # noqa: SLF001 - a writer that takes long
        assert offsets_read(log, 0) == [0, 1]
        assert log.reader.max_timestamp() is not None


@pytest.mark.parametrize(("bound", "expected"), [(2, [0, 1]), (3, [0, 1, 2]), (4, [0, 1, 2, 3])])
def test_a_bound_without_a_place_is_looked_up(bound: int, expected: list[int]) -> None:
    """A reader stops at the offset even if its position is not known yet."""
    log = committed(3, 3)
    view = log._core.state.view()  # noqa: SLF001 - the reader's internals
    assert view is not None
    marks = Watermarks(view.marks.log_start_offset, OffsetMetadata(bound), view.marks.end)
    fetched = fetch(ReadRequest(0, ALL_BYTES), view._replace(marks=marks))
    assert [batch.header.base_offset for batch in batches_in(fetched.data)] == expected
    assert fetched.next_offset == bound


def test_a_read_that_a_truncation_overtook_looks_again() -> None:
    """Bytes that are removed during a read are not damage.

    The result is that of the shorter log.
    """
    log = committed(6)
    file = log._core.state.local.active.records.file  # noqa: SLF001 - where the bytes go
    read_at = file.read_at
    cuts: list[int] = []

    def cutting(position: int, length: int) -> bytes:
        if not cuts:
            cuts.append(2)
            log.truncate_to(2)
        return read_at(position, length)

    file.read_at = cutting  # type: ignore[method-assign]  # a truncation during the read
    fetched = log.reader.read(0, max_bytes=ALL_BYTES)
    assert cuts == [2]
    assert fetched is not None
    assert fetched.next_offset == 2
    assert [batch.header.base_offset for batch in batches_in(fetched.data)] == [0, 1]


@pytest.mark.parametrize("value", [b"000900", b"one batch that takes the place of several" * 9])
def test_a_read_never_mixes_two_logs(value: bytes) -> None:
    """A log that is cut and rewritten during a read is returned as it is afterwards."""
    log = committed(6)
    before = log.watermarks
    file = log._core.state.local.active.records.file  # noqa: SLF001 - where the bytes go
    read_at = file.read_at
    cuts: list[int] = []

    def cutting(position: int, length: int) -> bytes:
        if not cuts:
            cuts.append(2)
            log.truncate_to(2)
            while log.reader.size_bytes < before.end.position:
                append_values(log, value)
            log.durability.commit()
        return read_at(position, length)

    file.read_at = cutting  # type: ignore[method-assign]  # another log during the read
    fetched = log.reader.read(0, max_bytes=ALL_BYTES)
    assert fetched is not None
    assert fetched.watermarks == log.watermarks
    assert fetched.leader_epoch == log.reader.leader_epoch == 1
    epochs = [batch.header.leader_epoch for batch in batches_in(fetched.data)]
    assert epochs == [0, 0, *[1] * (log.watermarks.high_watermark - 2)]


def test_a_read_over_many_indexes_that_cannot_be_read_is_whole() -> None:
    """Each is made anew, in one read."""
    world = World()
    log = committed(2, 2, 2, world=world)
    log.durability.flush()
    for base_offset in (0, 2, 4):
        world.disk.spoil(log_path(base_offset, suffix=".index"))
    assert offsets_read(log, 1) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_start_after_a_crash_replaces_an_index_that_cannot_be_read(suffix: str) -> None:
    """Recovery writes all entries anew, so it needs none of the old ones."""
    world = World()
    log = world.open_log(CONFIG)
    values = fill(log, batches=20)
    log.durability.flush()
    world.restart(power_cut=False)
    world.disk.spoil(log_path(suffix=suffix))
    again = world.open_log(CONFIG)
    assert read_values(again) == values
    again.maintenance.check_invariants()
