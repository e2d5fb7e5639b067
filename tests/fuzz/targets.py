"""What hostile bytes are fed to: each target takes any bytes and fails if a promise is broken.

A promise is kept by an answer or by an error of the kind that the called says it raises. Whatever
has a checksum is tried as it came and with a checksum that fits, or no input would get past it.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from engine.checkpoint.kafka_files import OffsetCheckpoint, read_epochs, read_topic_id, write_epochs
from engine.checkpoint.tidelog_files import ProducerIds, TopicsFile, read_directory_set, read_gaps
from engine.config import LogConfig
from engine.errors import (
    CorruptBatch,
    CorruptCheckpoint,
    CorruptIndex,
    CorruptSnapshot,
    EngineError,
    InvalidRecord,
    InvalidRequest,
    OffsetsOutOfOrder,
    TooLarge,
)
from engine.fs import names
from engine.index.offset import OffsetIndex
from engine.index.time import TimeIndex
from engine.index.transaction import TransactionIndex
from engine.log.analyse import AnalysisLimits, analyse
from engine.records.batch import BatchView, stamp_crc
from engine.records.builder import build_batch
from engine.records.check import check_records
from engine.records.checksum import crc32c
from engine.records.compression import decompress
from engine.records.header import (
    HEADER_BYTES,
    LENGTH_POSITION,
    MAGIC_2,
    MAGIC_POSITION,
    RECORDS_COUNT_POSITION,
    Codec,
    frame_size,
)
from engine.records.record import decode_records
from engine.records.scan import Tail, iter_headers, scan_batches
from engine.state.producer_snapshots import CHECKED_POSITION, decode_snapshot, encode_snapshot
from engine.types import AppendOrigin, FetchIsolation
from tests.support.builders import DATA, EVENTS, World
from tests.support.filesystem import ForgetfulDisk
from tests.support.logs import CONFIG
from tests.support.time import START_MS

LIMIT_BYTES: Final = 1 << 20
LIMITS: Final = AnalysisLimits(START_MS, LIMIT_BYTES)
CONFIGURATIONS: Final = (
    LogConfig(),
    LogConfig(cleanup_policy=("compact",)),
    LogConfig(message_timestamp_type="LogAppendTime", compression_type="lz4"),
)
BASE_OFFSET: Final = 40
WALKED: Final = 1_000
"""How many entries of an index are walked: one of zeros says the same over and over."""

Target = Callable[[bytes], None]

TARGETS: dict[str, Target] = {}


def target(check: Target) -> Target:
    TARGETS[check.__name__] = check
    return check


# -- batches -------------------------------------------------------------------------------------


@target
def scanner(data: bytes) -> None:
    """What counts as good is good by itself, and each batch of it can be read or says why not."""
    for content in (data, with_right_checksums(data)):
        found = scan_batches(content, limit_bytes=LIMIT_BYTES)
        good = content[: found.valid_bytes]
        again = scan_batches(good)
        assert (again.tail, again.batches_count) == (Tail.CLEAN, found.batches_count)
        for position, header in iter_headers(good):
            batch = BatchView(good, position)
            assert batch.header == header
            with contextlib.suppress(CorruptBatch, InvalidRecord, TooLarge, InvalidRequest):
                complete = batch.complete_header(limit_bytes=LIMIT_BYTES)
                records = list(batch.records(limit_bytes=LIMIT_BYTES))
                assert len(records) == complete.records_count
        with contextlib.suppress(CorruptBatch):
            list(iter_headers(content))


@target
def validator(data: bytes) -> None:
    """Batches that a client may append are intact, well framed, and readable by all readers."""
    for content in (data, with_right_checksums(data)):
        for config in CONFIGURATIONS:
            for origin in AppendOrigin:
                judge_append(content, config, origin)


def judge_append(content: bytes, config: LogConfig, origin: AppendOrigin) -> None:
    try:
        incoming = analyse(bytearray(content), config, origin, LIMITS, checked=False)
    except (InvalidRequest, OffsetsOutOfOrder):
        return
    end = 0
    for position, header in zip(incoming.positions, incoming.headers, strict=True):
        assert position == end
        end += header.size_bytes
        batch = BatchView(incoming.buffer, position)
        batch.ensure_intact()
        if origin is AppendOrigin.CLIENT:
            records = list(batch.records(limit_bytes=LIMIT_BYTES))
            assert len(records) == header.records_count
            assert records == list(decode_records(batch.uncompressed(), header))
            assert all(record.key is not None for record in records) or not config.is_compacted
    assert end == len(incoming.buffer)


@target
def records(data: bytes) -> None:
    """Both decoders read the same out of a payload that may be appended, and never beyond it."""
    if len(data) < 2:
        return
    count, payload = int.from_bytes(data[:2], "big"), data[2:]
    batch = build_batch([(START_MS, None, None, ())])[:HEADER_BYTES] + payload
    struct.pack_into(">i", batch, LENGTH_POSITION, len(batch) - 12)
    struct.pack_into(">i", batch, RECORDS_COUNT_POSITION - 34, count - 1)
    struct.pack_into(">i", batch, RECORDS_COUNT_POSITION, count)
    stamp_crc(batch, 0, len(batch))
    view = BatchView(batch)
    referee = outcome_of(lambda: list(decode_records(view.payload, view.header)))
    reader = outcome_of(lambda: list(view.records(limit_bytes=LIMIT_BYTES)))
    with contextlib.suppress(InvalidRecord):
        check_records(view, requires_keys=False, timestamp_bounds=None)
        assert isinstance(referee, list)
    assert reader == referee or not isinstance(referee, list)


def outcome_of(read: Callable[[], list[object]]) -> list[object] | None:
    """Return what was read; None if it was refused."""
    try:
        return read()
    except InvalidRecord:
        return None


@target
def codecs(data: bytes) -> None:
    """Nothing decompresses to more than it may, whatever it claims."""
    if not data:
        return
    codec = list(Codec)[data[0] % len(Codec)]
    for limit_bytes in (100, LIMIT_BYTES):
        with contextlib.suppress(CorruptBatch, TooLarge):
            content = decompress(codec, data[1:], limit_bytes, checks_lz4_hash=data[0] < 128)
            assert len(content) <= limit_bytes


def with_right_checksums(data: bytes) -> bytes:
    """Return the same with the checksum that each whole batch ought to have, where it has one."""
    content = bytearray(data)
    position = 0
    with contextlib.suppress(CorruptBatch):
        while (size := frame_size(content, position)) is not None:
            if size > len(content) - position:
                break
            if content[position + MAGIC_POSITION] == MAGIC_2 and size >= HEADER_BYTES:
                stamp_crc(content, position, size)
            position += size
    return bytes(content)


# -- the files beside the log --------------------------------------------------------------------


def disk_with(path: Path, content: bytes) -> ForgetfulDisk:
    disk = ForgetfulDisk()
    disk.make_directory(path.parent, parents=True)
    with disk.open(path, create=True) as file:
        file.append(content)
    return disk


@target
def indexes(data: bytes) -> None:
    """Every question is answered in the segment's bounds, or the file is called corrupt."""
    for suffix, walk in ((names.INDEX_SUFFIXES[0], walk_offsets), (".timeindex", walk_times)):
        path = DATA / f"{BASE_OFFSET:020d}{suffix}"
        with contextlib.suppress(CorruptIndex):
            walk(disk_with(path, data), path)
    path = DATA / f"{BASE_OFFSET:020d}.txnindex"
    aborted = TransactionIndex(disk_with(path, data), path, BASE_OFFSET)
    with contextlib.suppress(CorruptIndex):
        aborted.sanity_check()
        entries = list(aborted.entries())
        found = aborted.collect(0, 1 << 62)
        assert set(found.aborted) <= set(entries)
    aborted.truncate_to_offset(BASE_OFFSET + 5)
    assert aborted.content_below(BASE_OFFSET + 5) == aborted.content_below(1 << 62)


def walk_offsets(disk: ForgetfulDisk, path: Path) -> None:
    index = OffsetIndex(disk, path, BASE_OFFSET, 4_096)
    index.sanity_check()
    for target_offset in (0, BASE_OFFSET, BASE_OFFSET + 7, 1 << 40):
        found = index.lookup(target_offset)
        assert found.offset >= BASE_OFFSET
        assert found.position >= 0
    index.floor_by_position(100)
    for slot in range(min(index.count, WALKED)):
        assert index.entry(slot).offset >= BASE_OFFSET
    index.truncate(index.kept_below(BASE_OFFSET + 3))
    index.close()


def walk_times(disk: ForgetfulDisk, path: Path) -> None:
    index = TimeIndex(disk, path, BASE_OFFSET, 4_096)
    index.sanity_check()
    for time in (-1, 0, START_MS, 1 << 62):
        assert index.lookup(time).offset >= BASE_OFFSET
    for slot in range(min(index.count, WALKED)):
        assert index.entry(slot).offset >= BASE_OFFSET
    index.truncate(index.kept_below(BASE_OFFSET + 3))
    index.close()


def with_right_crc(snapshot: bytes) -> bytes:
    """Return the same with the checksum that a producer snapshot of it ought to have."""
    content = snapshot[CHECKED_POSITION:]
    return snapshot[:2] + struct.pack(">I", crc32c(content)) + content


@target
def snapshots(data: bytes) -> None:
    """What a snapshot says can be written and read again; or it is called corrupt."""
    for content in (data, with_right_crc(data)):
        with contextlib.suppress(CorruptSnapshot):
            entries = decode_snapshot(content, loaded_ms=0)
            again = decode_snapshot(encode_snapshot(entries), loaded_ms=0)
            assert len(again) == len(entries)
            assert decode_snapshot(encode_snapshot(again), loaded_ms=0) == again


@target
def checkpoints(data: bytes) -> None:
    """Each of the small files says something sound, or is called corrupt with its name."""
    for path, read in READERS.items():
        disk = disk_with(path, data)
        try:
            read(disk, path)
        except CorruptCheckpoint as error:
            ensure_named(path, error)


def ensure_named(path: Path, error: EngineError) -> None:
    assert str(path) in str(error)


def read_offsets(disk: ForgetfulDisk, path: Path) -> None:
    checkpoint = OffsetCheckpoint(disk, path)
    offsets = checkpoint.read()
    checkpoint.write(offsets)
    assert checkpoint.read() == offsets


def read_leader_epochs(disk: ForgetfulDisk, path: Path) -> None:
    entries = read_epochs(disk, path)
    write_epochs(disk, path, entries)
    assert read_epochs(disk, path) == entries


def read_topics(disk: ForgetfulDisk, path: Path) -> None:
    file = TopicsFile(disk, path.parent)
    copy = file.read_copy()
    file.write(copy.topics, copy.generation)
    assert file.read_copy() == copy


READERS: Final[dict[Path, Callable[[ForgetfulDisk, Path], object]]] = {
    DATA / names.RECOVERY_POINT_CHECKPOINT: read_offsets,
    DATA / names.LEADER_EPOCH_CHECKPOINT: read_leader_epochs,
    DATA / names.SEGMENT_GAPS: read_gaps,
    DATA / names.PARTITION_METADATA: read_topic_id,
    DATA / names.TOPICS_FILE: read_topics,
    DATA / names.PRODUCER_ID_FILE: lambda disk, path: ProducerIds(disk, path.parent).allocate(),
    DATA / names.DIRECTORIES_FILE: lambda disk, path: read_directory_set(disk, path.parent),
}


# -- a whole log ---------------------------------------------------------------------------------


@target
def recovery(data: bytes) -> None:
    """Whatever a `.log` file holds, a start ends, and what it serves is whole and intact."""
    for content in (data, with_right_checksums(data)):
        world = World(fs=disk_with(DATA / str(EVENTS) / names.log_name(0), content))
        with contextlib.suppress(EngineError):
            log = world.open_log(CONFIG)
            log.maintenance.check_invariants()
            for offset in islice(readable(log.watermarks.log_end_offset), 20):
                for isolation in FetchIsolation:
                    fetched = log.reader.read(offset, max_bytes=1_000, isolation=isolation)
                    assert fetched is not None
                    assert scan_batches(fetched.data).tail is Tail.CLEAN
            log.reader.offset_for_time(START_MS)
            log.close()


def readable(end: int) -> Iterator[int]:
    """Yield some offsets of a log, the first and last among them."""
    yield from range(0, end + 1, max(1, end // 18))
