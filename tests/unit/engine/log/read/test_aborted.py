"""The cost and the result of a `read_committed` read after a clean start."""

from dataclasses import replace
from types import TracebackType

import pytest

from engine.errors import Overloaded
from engine.log.log import Log
from engine.log.read.aborted import transactions_in
from engine.records.batch import BatchView
from engine.records.builder import encode_batch
from engine.records.control import ControlType, build_end_marker
from engine.records.record import Record
from engine.segment.index_checks import ensure_aborts_known
from engine.segment.proofs import REMEMBERED_MARKERS
from engine.types import AppendOrigin, FetchIsolation
from tests.support.builders import SMALL_CONFIG, World, new_batch, values_of
from tests.support.logs import CONFIG, read_records
from tests.support.time import START_MS

COMMITTED = FetchIsolation.TXN_COMMITTED
P, Q = 7, 8


class Writer:
    """Two transactional producers and a log."""

    def __init__(self, config: int = SMALL_CONFIG.max_index_check_bytes) -> None:
        self.world = World(config=replace(SMALL_CONFIG, max_index_check_bytes=config))
        self.log = self.world.open_log(CONFIG)
        self._sequences = {P: 0, Q: 0}

    def write(self, producer_id: int, value: bytes = b"value") -> None:
        self.log.append(
            values_of(
                [value],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=self._sequences[producer_id],
                is_transactional=True,
            )
        )
        self._sequences[producer_id] += 1

    def end(self, producer_id: int, how: ControlType) -> None:
        marker = build_end_marker(
            how, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=START_MS
        )
        self.log.append(marker, origin=AppendOrigin.COORDINATOR)

    def restart(self) -> Log:
        """Stop cleanly and open the log again."""
        self.log.durability.flush()
        self.log.close()
        self.world.restart(power_cut=False)
        end = self.log.watermarks.log_end_offset
        self.log = self.world.open_log(CONFIG, recovery_point=end, was_clean=True)
        return self.log


def unproven(log: Log) -> list[int]:
    """The segments whose transaction index is not verified yet."""
    return [one.base_offset for one in log.reader.segments if one.proofs.unproven_aborts_bytes]


def offsets(data: bytes | memoryview | bytearray) -> list[int]:
    told, at = [], 0
    view = memoryview(data)
    while at < len(view):
        batch = BatchView(view, at)
        told.append(batch.header.base_offset)
        at += batch.header.size_bytes
    return told


def interleaved() -> Writer:
    """Five segments: P's commit is in the third one, at 4, Q's abort in the fourth, at 6."""
    writer = Writer()
    for producer_id in (P, Q, P, Q):
        writer.write(producer_id)
        if producer_id == Q:
            writer.log.roll()
    writer.end(P, ControlType.COMMIT)
    writer.log.append(new_batch())
    writer.log.roll()
    writer.end(Q, ControlType.ABORT)
    writer.log.append(new_batch())
    writer.log.roll()
    writer.log.append(new_batch(2))
    writer.log.durability.commit()
    return writer


def nonblocking(log: Log, offset: int, isolation: FetchIsolation = COMMITTED) -> list[int] | None:
    """Return the result of a read of one batch that must not wait for the disk."""
    fetched = log.reader.read(offset, max_bytes=1, isolation=isolation, cached_only=True)
    return None if fetched is None else offsets(fetched.data)


def test_a_read_that_must_not_wait_checks_no_index() -> None:
    """On the event loop, an index that has to be read is left to a worker thread."""
    log = interleaved().restart()
    for offset in (0, 3, 8):
        log.reader.read(offset, max_bytes=1)  # from now on the batches are cached
        assert nonblocking(log, offset, FetchIsolation.HIGH_WATERMARK) == [offset]
    assert nonblocking(log, 8) == [8], "without transactions there is nothing to look for"
    assert nonblocking(log, 0) is None
    assert unproven(log) == [0, 2, 4, 6, 8]
    for offset in (0, 3):
        log.reader.read(offset, max_bytes=1, isolation=COMMITTED)
    assert nonblocking(log, 0) == [0]
    assert nonblocking(log, 3) is None, "its abort is in a file"


def test_a_read_checks_the_indexes_as_far_as_the_markers_that_it_needs() -> None:
    """P's transaction ends in the third segment; the others are not touched for it."""
    log = interleaved().restart()
    fetched = log.reader.read(0, max_bytes=1, isolation=COMMITTED)
    assert fetched is not None
    assert offsets(fetched.data) == [0]
    assert unproven(log) == [6, 8]
    fetched = log.reader.read(2, max_bytes=1, isolation=COMMITTED)
    assert fetched is not None
    assert offsets(fetched.data) == [2]
    assert unproven(log) == [6, 8]
    fetched = log.reader.read(3, max_bytes=1, isolation=COMMITTED)
    assert fetched is not None
    assert (offsets(fetched.data), fetched.next_offset) == ([], 4)
    assert unproven(log) == [8]


def test_a_read_with_the_markers_in_it_checks_no_index() -> None:
    """The markers themselves say what was aborted."""
    log = interleaved().restart()
    fetched = log.reader.read(0, max_bytes=1 << 20, isolation=COMMITTED, cached_only=False)
    assert fetched is not None
    assert offsets(fetched.data) == [0, 2, 5, 7, 8]
    assert unproven(log) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("max_bytes", [1, 150, 300, 1 << 20])
def test_committed_reads_agree_whatever_they_are_cut_into(max_bytes: int) -> None:
    """Reads use markers or indexes to find aborted transactions, and both agree."""
    log = interleaved().restart()
    found, offset = [], 0
    while offset < 10:
        fetched = log.reader.read(offset, max_bytes=max_bytes, isolation=COMMITTED)
        assert fetched is not None
        found += offsets(fetched.data)
        offset = fetched.next_offset
    assert found == [0, 2, 5, 7, 8]
    assert [record.offset for record in read_records(log, isolation=COMMITTED)] == [
        0,
        2,
        5,
        7,
        8,
        9,
    ]


def test_a_read_that_needs_many_indexes_comes_again() -> None:
    """Each attempt verifies one segment beyond the limit; the next one continues from there."""
    writer = Writer(config=1)
    writer.write(P)
    for _ in range(4):
        writer.log.roll()
        writer.log.append(new_batch())
    writer.end(P, ControlType.ABORT)
    writer.log.durability.commit()
    log = writer.restart()
    for left in (4, 3, 2, 1):
        with pytest.raises(Overloaded) as refused:
            log.reader.read(0, max_bytes=1, isolation=COMMITTED)
        assert refused.value.facts()["limit"] == "max_index_check_bytes"
        assert len(unproven(log)) == left
    fetched = log.reader.read(0, max_bytes=1, isolation=COMMITTED)
    assert fetched is not None
    assert (offsets(fetched.data), fetched.next_offset) == ([], 1)


def test_a_marker_that_was_cut_off_is_not_remembered() -> None:
    """The commit was truncated away and an abort in a later segment came instead."""
    writer = Writer()
    writer.write(P)
    writer.log.append(new_batch())
    writer.end(P, ControlType.COMMIT)
    writer.log.durability.commit()
    log = writer.restart()
    assert log.reader.read(0, max_bytes=1, isolation=COMMITTED) is not None
    assert not unproven(log)
    log.truncate_to(2)
    log.roll()
    writer.end(P, ControlType.ABORT)
    log.durability.commit()
    fetched = log.reader.read(0, max_bytes=1, isolation=COMMITTED)
    assert fetched is not None
    assert (offsets(fetched.data), fetched.next_offset) == ([], 1)


def test_a_segment_remembers_the_markers_of_so_many_producers() -> None:
    """With more producers a search continues in the next segment: slower, but correct."""
    log = interleaved().restart()
    proofs = log.reader.segments[0].proofs
    proofs.trust_aborts(proofs.cuts, dict.fromkeys(range(REMEMBERED_MARKERS + 1), 5))
    assert not proofs.last_markers
    proofs.trust_aborts(proofs.cuts, dict.fromkeys(range(REMEMBERED_MARKERS), 5))
    assert len(proofs.last_markers) == REMEMBERED_MARKERS


def test_an_index_is_checked_once() -> None:
    """The second read does not even wait for a running verification."""
    segment = interleaved().restart().reader.segments[0]
    ensure_aborts_known(segment)
    assert segment.proofs.unproven_aborts_bytes == 0
    with segment.proofs.proving:
        ensure_aborts_known(segment)


def test_an_index_that_another_reader_has_just_checked_is_not_checked_again() -> None:
    """A reader that waited for the verification uses its result."""
    segment = interleaved().restart().reader.segments[0]

    class CheckedMeanwhile:
        def __enter__(self) -> None:
            segment.proofs.trust_aborts(segment.proofs.cuts, {P: 1})

        def __exit__(self, kind: object, error: object, trace: TracebackType | None) -> None:
            pass

    segment.proofs.proving = CheckedMeanwhile()  # type: ignore[assignment]  # a stand-in for a lock
    ensure_aborts_known(segment)
    assert segment.proofs.last_markers == {P: 1}, "and not what a walk would find"


@pytest.mark.parametrize(
    ("key", "waits"), [(b"\x00\x00\x00\x05", True), (b"\xff\xff\x00\x01", True)]
)
def test_a_control_batch_that_ends_nothing_leaves_its_transaction_open(
    key: bytes, *, waits: bool
) -> None:
    """Another kind of control record, or a malformed one: the indexes decide."""
    data = values_of(
        [b"value"], producer_id=P, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    header = BatchView(
        memoryview(
            build_end_marker(
                ControlType.ABORT,
                producer_id=P,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=START_MS,
            )
        )
    ).header
    odd = encode_batch(header, [Record(0, START_MS, key, b"\x00\x00\x00\x00\x00\x00", ())])
    told = transactions_in(bytes(data) + bytes(odd))
    assert (told.waiting, told.aborted) == ({P}, [])
