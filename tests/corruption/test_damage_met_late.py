"""Damage at places that a start does not check, found by the first read or append there."""

import logging
import struct
from pathlib import Path

import pytest

from engine.config import LogConfig
from engine.errors import CorruptIndex, LogOffline, StoredDataCorrupt
from engine.fs import names
from engine.index.transaction import ENTRY as TXN_ENTRY
from engine.log.index_repair import rebuild_index
from engine.log.results import ReadEnd
from engine.records.header import HEADER_BYTES
from engine.records.scan import iter_headers
from engine.segment import proofs
from engine.segment.index_checks import Reindexing, ensure_aborts_known, ensure_sane
from engine.segment.segment import Segment
from engine.types import FetchIsolation
from tests.support.builders import DATA, EVENTS, World
from tests.support.damage import PARTITION, Filled, fill, one_bit_flipped, rewrite
from tests.support.logs import CONFIG, batches_in, log_path, read_values
from tests.support.logs import fill as fill_log
from tests.support.time import START_MS

TIME_ENTRY = struct.Struct(">qi")
OFFSET_ENTRY = struct.Struct(">ii")


def segment_file(base_offset: int, suffix: str) -> Path:
    return PARTITION / f"{base_offset:020d}{suffix}"


def change_entry(filled: Filled, path: Path, entry: struct.Struct, slot: int, *fields: int) -> None:
    """Put another entry in one slot of an index."""
    content = bytearray(filled.world.fs.read_bytes(path))
    assert 0 <= slot < len(content) // entry.size - 1, "the last entry is seen by the start"
    entry.pack_into(content, slot * entry.size, *fields)
    rewrite(filled.world.fs, path, bytes(content))


def open_segment(filled: Filled, base_offset: int, *, index_bytes: int = 2400) -> Segment:
    config = LogConfig(segment_index_bytes=index_bytes, index_interval_bytes=200)
    return Segment(filled.world.fs, PARTITION, base_offset, config, now_ms=START_MS)


@pytest.mark.parametrize("slot", [0, 1, 2])
@pytest.mark.parametrize(("shift", "delta"), [(3, 10), (-5, 0), (9, 40)])
def test_a_time_is_found_whatever_the_time_index_says(slot: int, shift: int, delta: int) -> None:
    """An entry with a time that its batch does not have is not used; the index is rebuilt."""
    filled = fill()
    path = segment_file(0, ".timeindex")
    before = filled.world.fs.read_bytes(path)
    time, offset = TIME_ENTRY.unpack_from(before, slot * TIME_ENTRY.size)
    change_entry(filled, path, TIME_ENTRY, slot, time + delta, max(0, offset + shift))
    manager = filled.reopen()
    log = manager.log(EVENTS)
    for time in set(filled.times.values()):
        found = log.reader.offset_for_time(time)
        assert found is not None
        assert found.offset == min(at for at in filled.times if filled.times[at] >= time)
    log.maintenance.check_invariants()


@pytest.mark.parametrize("fields", [(2, 7), (2, 150), (2, 10_000), (1, 800), (-4, 300), (9, -7)])
def test_an_offset_is_found_whatever_the_offset_index_says(
    fields: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Entries into a batch, past the target, past the end or below zero mislead no look-up."""
    filled = fill()
    change_entry(filled, segment_file(30, ".index"), OFFSET_ENTRY, 0, *fields)
    log = filled.reopen().log(EVENTS)
    with caplog.at_level(logging.WARNING):
        for offset in (offset for offset in filled.values if 30 <= offset < 60):
            fetched = log.reader.read(offset, max_bytes=1)
            assert fetched is not None
            (batch,) = batches_in(fetched.data)
            found = {record.offset: record.value for record in batch.records()}
            assert found[offset] == filled.values[offset]


def test_damage_at_an_index_entry_is_distinguished_from_a_wrong_index() -> None:
    """The scan shows that the index is correct and the batch damaged; later batches are served."""
    filled = fill()
    relative, position = OFFSET_ENTRY.unpack_from(
        filled.world.fs.read_bytes(segment_file(30, ".index"))
    )
    path = segment_file(30, ".log")
    content = bytearray(filled.world.fs.read_bytes(path))
    content[position + HEADER_BYTES + 5] ^= 1
    rewrite(filled.world.fs, path, bytes(content))
    log = filled.reopen().log(EVENTS)
    last_offset = 30 + relative
    with pytest.raises(StoredDataCorrupt) as caught:
        log.reader.read(last_offset, max_bytes=1)
    assert (caught.value.file, caught.value.position) == (path, position)
    assert caught.value.offset == last_offset
    fetched = log.reader.read(last_offset + 1, max_bytes=1)
    assert fetched is not None
    assert fetched.first_offset == last_offset + 1


def test_batches_of_another_segment_are_not_served() -> None:
    """They are intact and have their place elsewhere."""
    filled = fill()
    fs = filled.world.fs
    rewrite(fs, segment_file(30, ".log"), fs.read_bytes(segment_file(60, ".log")))
    with pytest.raises(StoredDataCorrupt, match="not in this segment"):
        filled.reopen().log(EVENTS).reader.read(30, max_bytes=1)


def test_an_entry_that_leads_to_a_batch_of_another_segment_is_not_followed() -> None:
    """The batch is intact, and the file is another one's."""
    filled = fill()
    fs = filled.world.fs
    rewrite(fs, segment_file(60, ".log"), fs.read_bytes(segment_file(30, ".log")))
    with pytest.raises(CorruptIndex, match="which is not in this segment"):
        open_segment(filled, 60).locate(89)


def test_an_entry_that_leads_to_a_batch_whose_offset_goes_back_is_not_followed() -> None:
    """The offset is under no checksum; the batch before it tells."""
    filled = fill()
    path = segment_file(30, ".log")
    index = filled.world.fs.read_bytes(segment_file(30, ".index"))
    relative, position = OFFSET_ENTRY.unpack_from(index)
    content = bytearray(filled.world.fs.read_bytes(path))
    struct.pack_into(">q", content, position, 30)
    rewrite(filled.world.fs, path, bytes(content))
    with pytest.raises(StoredDataCorrupt, match=r"instead of at least \d+"):
        open_segment(filled, 30).locate(30 + relative)


def test_a_log_is_cut_right_in_spite_of_a_wrong_index() -> None:
    """Truncation rebuilds the index instead of cutting at a wrong position."""
    filled = fill()
    change_entry(filled, segment_file(60, ".index"), OFFSET_ENTRY, 0, 2, 7)
    log = filled.reopen().log(EVENTS)
    log.truncate_to(70)
    assert log.watermarks.log_end_offset == 70
    log.maintenance.check_invariants()
    fetched = log.reader.read(65, max_bytes=1)
    assert fetched is not None
    assert fetched.first_offset == 65


def test_producers_are_rebuilt_in_spite_of_a_wrong_index() -> None:
    """The scan from a log start within a segment walks from the segment's first byte."""
    filled = fill()
    for offset in (30, 60, 90):
        filled.world.fs.remove(PARTITION / names.snapshot_name(offset))
    with filled.world.fs.open(PARTITION / names.snapshot_name(60), create=True) as file:
        file.append(b"damaged")
    rewrite(filled.world.fs, DATA / names.LOG_START_CHECKPOINT, b"0\n1\nevents 0 45\n")
    change_entry(filled, segment_file(30, ".index"), OFFSET_ENTRY, 0, 2, 7)
    producers = filled.reopen().log(EVENTS).producers.active()
    assert {producer.producer_id for producer in producers} == {11, 12}


def test_a_marker_that_is_damaged_stops_the_rebuilding_of_producers() -> None:
    """Who has committed what cannot be guessed: the log is offline, and the place named."""
    filled = fill()
    path = segment_file(60, ".log")
    content = bytearray(filled.world.fs.read_bytes(path))
    position = next(at for at, header in iter_headers(content) if header.is_control)
    content[position + HEADER_BYTES + 6] ^= 1
    rewrite(filled.world.fs, path, bytes(content))
    filled.damage(PARTITION / names.snapshot_name(90), one_bit_flipped)
    with pytest.raises(LogOffline, match="tidelog repair") as caught:
        filled.reopen().log(EVENTS)
    facts = caught.value.facts()
    assert (facts["file"], facts["position"]) == (str(path), position)


def test_offsets_that_go_back_stop_the_making_of_an_index() -> None:
    """A log file whose batches are out of order has no right index."""
    filled = fill()
    path = segment_file(30, ".log")
    content = filled.world.fs.read_bytes(path)
    ends = [at + header.size_bytes for at, header in iter_headers(content)]
    swapped = content[ends[0] : ends[1]] + content[: ends[0]] + content[ends[1] :]
    rewrite(filled.world.fs, path, swapped)
    with pytest.raises(StoredDataCorrupt, match="offsets 30 to 34, but 40 is next"):
        Reindexing(open_segment(filled, 30)).walk()


def test_an_index_that_has_become_too_small_is_filled_as_far_as_it_goes() -> None:
    """Look-ups after its last entry read headers."""
    filled = fill()
    segment = open_segment(filled, 30, index_bytes=24)
    work = Reindexing(segment)
    work.walk()
    work.install(is_active=True)
    assert segment.indexes.offset.count == 1
    assert segment.indexes.time.count == 1
    found = segment.locate(58)
    assert found is not None
    assert found.base_offset <= 58 <= found.last_offset


def test_the_memory_of_proven_places_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgetting a place costs another look at it, no more."""
    monkeypatch.setattr(proofs, "REMEMBERED_PLACES", 2)
    filled = fill()
    segment = open_segment(filled, 0)
    for _ in range(2):
        for offset in filled.values:
            if offset < 30:
                found = segment.locate(offset)
                assert found is not None
                assert found.base_offset <= offset <= found.last_offset


@pytest.mark.parametrize(
    "entries",
    [
        [(11, 20, 24, 25), (11, 26, 27, 28)],
        [(12, 20, 24, 25)],
        [(11, 22, 24, 25)],
        [(11, 20, 24, 30)],
        [(11, 24, 20, 25)],
        [(11, 20, 29, 30)],
        [],
    ],
    ids=["one too many", "producer", "begins late", "stable late", "backwards", "commit", "none"],
)
def test_aborts_that_the_markers_contradict_are_not_believed(
    entries: list[tuple[int, int, int, int]],
) -> None:
    """Of what the index says of an aborted transaction every number counts."""
    filled = fill()
    path = segment_file(0, ".txnindex")
    assert filled.world.fs.read_bytes(path) == TXN_ENTRY.pack(0, 11, 20, 24, 25)
    content = b"".join(TXN_ENTRY.pack(0, *entry) for entry in entries)
    rewrite(filled.world.fs, path, content)
    with pytest.raises(CorruptIndex, match="tidelog repair"):
        ensure_aborts_known(open_segment(filled, 0))


def test_a_damaged_marker_is_no_fault_of_the_index() -> None:
    """The index is believed, and who reads the marker learns of the damage."""
    filled = fill()
    path = segment_file(0, ".log")
    content = bytearray(filled.world.fs.read_bytes(path))
    position = next(at for at, header in iter_headers(content) if header.is_control)
    content[position + HEADER_BYTES + 6] ^= 1
    rewrite(filled.world.fs, path, bytes(content))
    ensure_aborts_known(open_segment(filled, 0))
    log = filled.reopen().log(EVENTS)
    committed = FetchIsolation.TXN_COMMITTED
    before = log.reader.read(0, max_bytes=1 << 20, isolation=committed)
    assert before is not None
    assert before.ended_by is ReadEnd.DAMAGE
    with pytest.raises(StoredDataCorrupt):
        log.reader.read(before.next_offset, max_bytes=1 << 20, isolation=committed)


def test_epochs_are_made_as_far_as_a_damaged_log_tells(caplog: pytest.LogCaptureFixture) -> None:
    """A frame that cannot be ends the search in its segment, not in the log."""
    filled = fill()
    filled.world.fs.remove(PARTITION / names.LEADER_EPOCH_CHECKPOINT)
    path = segment_file(30, ".log")
    content = filled.world.fs.read_bytes(path)
    rewrite(filled.world.fs, path, bytes(HEADER_BYTES) + content[HEADER_BYTES:])
    with caplog.at_level(logging.WARNING):
        log = filled.reopen().log(EVENTS)
    assert log.reader.leader_epoch == 0
    assert [
        r.message for r in caplog.records if "leader epochs are not read from here on" in r.message
    ]
    fetched = log.reader.read(60, max_bytes=1)
    assert fetched is not None
    assert fetched.first_offset == 60


def test_a_later_reader_finds_the_index_rebuilt(caplog: pytest.LogCaptureFixture) -> None:
    """Of two that met the same wrong entry only the first rebuilds."""
    filled = fill()
    change_entry(filled, segment_file(30, ".index"), OFFSET_ENTRY, 0, 2, 7)
    log = filled.reopen().log(EVENTS)
    with pytest.raises(CorruptIndex) as met:
        log.reader.segments[1].locate(33)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            rebuild_index(log._core, met.value)  # noqa: SLF001 - as two readers do that met it at once
    assert len([r for r in caplog.records if "rebuilding its indexes" in r.message]) == 1
    found = log.reader.segments[1].locate(33)
    assert found is not None
    assert found.base_offset <= 33 <= found.last_offset


def test_an_unreadable_abort_marker_is_no_fault_of_the_index() -> None:
    """The start goes on, and who reads the marker learns of the damage."""
    filled = fill()
    path = segment_file(30, ".log")
    content = bytearray(filled.world.fs.read_bytes(path))
    position = next(at for at, header in iter_headers(content) if header.is_control)
    content[position + HEADER_BYTES + 5] ^= 0x80  # a negative version
    rewrite(filled.world.fs, path, bytes(content))
    assert ensure_sane(open_segment(filled, 30), has_transactions=True) == 60
    reader = filled.reopen().log(EVENTS).reader
    before = reader.read(30, max_bytes=1 << 20)
    assert before is not None
    with pytest.raises(StoredDataCorrupt) as caught:
        reader.read(before.next_offset, max_bytes=1 << 20)
    assert caught.value.position == position


def test_what_is_appended_while_an_index_is_mended_is_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The segment is walked without the lock, and its new end once more with it."""
    world = World()
    log = world.open_log(CONFIG)
    expected = fill_log(log, batches=40)
    log.close()
    world.restart(power_cut=False)
    path = log_path(suffix=".index")
    content = world.disk.read_bytes(path)
    rewrite(world.disk, path, content[:4] + b"\x00\x00\x00\x05" + content[8:])
    log = world.open_log(CONFIG, recovery_point=40, was_clean=True)
    walk = Reindexing.walk
    walks: list[Reindexing] = []

    def walked(work: Reindexing) -> None:
        walk(work)
        walks.append(work)
        if len(walks) == 1:
            expected.extend(fill_log(log, batches=20, first=40))

    monkeypatch.setattr(Reindexing, "walk", walked)
    assert log.reader.read(int.from_bytes(content[:4], "big"), max_bytes=1) is not None
    assert len(walks) == 2
    log.durability.commit()
    assert read_values(log) == expected
    assert log.reader.segments[0].indexes.offset.last_entry.offset >= 55
