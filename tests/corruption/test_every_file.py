"""Every file of two data directories, damaged in every way, after a clean stop and after a crash.

No table says what is to happen to which file. Whatever it is: a start either refuses, in a sentence
that names the file, and changes nothing, or every record that is served is right, every record that
is missing was reported, and what is not ours is as it was.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType

import pytest

from engine.cleaner.cleaner import LogCleaner
from engine.errors import EngineError, StoredDataCorrupt
from engine.fs import names
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.records.scan import iter_headers
from engine.segment.file_records import FileRecords
from engine.types import AppendOrigin, TopicPartition
from tests.support.builders import World, new_batch
from tests.support.compaction import BY_HAND, keyed
from tests.support.damage import DAMAGES, Damage, rewrite
from tests.support.logs import batches_in, fill_segments
from tests.support.segments import batch_at
from tests.unit.engine.manager.test_directories import A, B, opened

JUMPED, PLAIN, COMPACTED = (TopicPartition(name, 0) for name in ("jumped", "plain", "compacted"))
NOT_THE_ENGINES = (names.API_KEYS_FILE, names.META_PROPERTIES, "notes.txt")

Records = dict[int, bytes | None]


@dataclass(frozen=True)
class Image:
    """Two data directories with a file of every kind, and what their logs hold."""

    files: Mapping[Path, bytes]
    records: Mapping[TopicPartition, Records]

    def restored(self) -> World:
        """The same files on a disk of their own."""
        world = World()
        for path, content in self.files.items():
            world.fs.make_directory(path.parent, parents=True)
            with world.fs.open(path, create=True) as file:
                file.append(content)
        world.disk.sync_everything()
        return world


def files_of(world: World) -> Iterator[Path]:
    fs = world.fs
    here = [path / name for path in (A, B) for name in fs.list_directory(path)]
    folders = [path for path in here if fs.is_directory(path)]
    inside = [path / name for path in folders for name in fs.list_directory(path)]
    return (path for path in (*here, *inside) if not fs.is_directory(path))


def records_of(log: Log) -> dict[int, bytes | None]:
    """Return all records of a log by offset, from as many reads as it has batches."""
    found: dict[int, bytes | None] = {}
    offset = log.watermarks.log_start_offset
    while offset < log.watermarks.high_watermark:
        fetched = log.read(offset, max_bytes=1)
        assert fetched is not None
        assert fetched.next_offset > offset
        for batch in batches_in(fetched.data):
            found |= {one.offset: one.value for one in batch.records() if one.offset >= offset}
        offset = fetched.next_offset
    return found


@cache
def image(*, was_clean: bool) -> Image:
    """Fill three logs: one that jumped, one of several segments, one that was compacted."""
    world = World()
    manager = opened(world)
    settings = {"segment.index.bytes": "1200", "index.interval.bytes": "100", "retention.ms": "-1"}
    size_bytes = 3 * len(batch_at(0))
    manager.create_topic("jumped", 1, {**settings, "segment.bytes": size_bytes})
    manager.create_topic("plain", 1, settings)
    manager.create_topic("compacted", 1, {**settings, "cleanup.policy": "compact"})
    for offset in (0, 1, 2, 10, 11):
        manager.log(JUMPED).append(batch_at(offset), origin=AppendOrigin.REPLICATION)
    fill_segments(manager.log(PLAIN), 4, 3, 2)
    producer_id, epoch = manager.allocate_producer()
    manager.log(PLAIN).append(
        new_batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
    )
    for value in "abc":
        manager.log(COMPACTED).append(keyed(("key", value)))
        manager.log(COMPACTED).roll()
    for log in manager.logs():
        log.flush()
    clean(world, manager)
    manager.checkpoint()
    records = {log.topic_partition: records_of(log) for log in manager.logs()}
    if was_clean:
        manager.close()
    for name in NOT_THE_ENGINES:
        with world.fs.open(A / name, create=True) as file:
            file.append(b"somebody else's")
    world.restart(power_cut=False)
    files = {path: world.fs.read_bytes(path) for path in files_of(world)}
    return Image(MappingProxyType(files), MappingProxyType(records))


def clean(world: World, manager: LogManager) -> None:
    cleaner = LogCleaner(manager, clock=world.clock, config=BY_HAND, recorder=world.recorder)
    cleaner.start()
    cleaner.clean_now(manager.log(COMPACTED))
    cleaner.stop()


def judge(content: bytes, path: Path, *, was_clean: bool) -> None:
    """Put this into the place of a file, open and read everything, twice.

    Fail on a record that is wrong, a loss that nobody reported, a file touched that is not ours.
    """
    before = image(was_clean=was_clean)
    world = before.restored()
    rewrite(world.fs, path, content)
    world.disk.sync_everything()
    others = {A / name: world.fs.read_bytes(A / name) for name in NOT_THE_ENGINES}
    records = before.records
    for _ in range(2):
        try:
            manager = opened(world)
        except EngineError as error:
            ensure_refused_well(error, world, path, content)
            return
        assert {log.topic_partition for log in manager.logs()} == before.records.keys()
        left = {log.topic_partition: log for log in manager.logs()}
        records = {key: ensure_right(log, records[key], path) for key, log in left.items()}
        manager.close()
        world.restart(power_cut=True)
    assert {other: world.fs.read_bytes(other) for other in others} == others


def ensure_refused_well(error: EngineError, world: World, path: Path, content: bytes) -> None:
    assert path.name in str(error), "it says which file it is"
    assert world.fs.read_bytes(path) == content, "and leaves it for somebody who knows"


def ensure_right(log: Log, records: Records, path: Path) -> Records:
    """Return what is served; it is what there was, or who runs the service has been told."""
    try:
        found = records_of(log)
    except StoredDataCorrupt as damage:
        ensure_reported_well(damage, path)
        return records
    assert {*found.values()} <= {*records.values()}
    recovery = log.recovery
    is_told = recovery.damage or recovery.truncated_bytes or recovery.removed_segments
    assert is_told or found == records, recovery
    if path.suffix != names.LOG_SUFFIX:
        log.check_invariants()
    return found


def ensure_reported_well(damage: StoredDataCorrupt, path: Path) -> None:
    assert damage.file == path
    assert damage.position >= 0


def all_files(*, was_clean: bool) -> list[Path]:
    return list(image(was_clean=was_clean).files)


EVERY_FILE = pytest.mark.parametrize("path", all_files(was_clean=True), ids=str)


def test_there_is_a_file_of_every_kind() -> None:
    """What is not made here is not damaged here."""
    found = {path.name for path in all_files(was_clean=True)}
    assert found >= {
        names.CLEAN_SHUTDOWN_FILE,
        names.RECOVERY_POINT_CHECKPOINT,
        names.LOG_START_CHECKPOINT,
        names.HIGH_WATERMARK_CHECKPOINT,
        names.CLEANER_CHECKPOINT,
        names.TOPICS_FILE,
        names.DIRECTORIES_FILE,
        names.PRODUCER_ID_FILE,
        *NOT_THE_ENGINES,
        names.LEADER_EPOCH_CHECKPOINT,
        names.PARTITION_METADATA,
        names.SEGMENT_GAPS,
        names.log_name(0),
        names.index_name(0),
        names.time_index_name(0),
    }
    assert any(name.endswith(names.SNAPSHOT_SUFFIX) for name in found)
    assert names.LOCK_FILE in {path.name for path in all_files(was_clean=False)}


@pytest.mark.long
@pytest.mark.parametrize("was_clean", [True, False])
def test_a_damaged_file_makes_nothing_wrong(*, was_clean: bool) -> None:
    """Every file in one way, every way for some files; the rest of the table takes longer."""
    files = image(was_clean=was_clean).files
    shift = 0 if was_clean else len(DAMAGES) // 2
    ways = islice(cycle(DAMAGES), shift, None)
    for (path, content), damage in zip(files.items(), ways, strict=False):
        judge(damage(content), path, was_clean=was_clean)


def test_a_wrong_offset_is_no_place_of_a_record() -> None:
    """The offset that a batch begins with is not under its checksum: its neighbours tell.

    Lower or higher by little, or so far away that no index of its segment can express it.
    """
    wrong_offsets(bits=(0, 2, 33))


@pytest.mark.long
def test_no_bit_of_an_offset_makes_it_the_place_of_a_record() -> None:
    """The whole of it, of every batch."""
    wrong_offsets(bits=range(64))


@pytest.mark.parametrize("is_index_there", [True, False])
def test_a_compacted_segment_that_lost_every_byte_is_told(*, is_index_there: bool) -> None:
    """Offsets may be missing there, yet an index has entries for something; if it is there."""
    world = image(was_clean=True).restored()
    (path, *_) = [one for one in image(was_clean=True).files if one.match(f"{COMPACTED}/*.log")]
    rewrite(world.fs, path, b"")
    if not is_index_there:
        for suffix in names.INDEX_SUFFIXES:
            world.fs.remove(path.with_suffix(suffix), missing_ok=True)
    damage = opened(world).log(COMPACTED).recovery.damage
    assert damage == (f"{path} is empty, and its indexes are not" if is_index_there else None)


def test_batches_that_lead_nowhere_tell_no_offset() -> None:
    """What comes before a batch is only known if its frames are whole."""
    before = image(was_clean=True)
    world = before.restored()
    path = next(one for one in before.files if one.match(f"{PLAIN}/*.log"))
    content = bytearray(before.files[path])
    places = [at for at, _ in iter_headers(content)]
    with world.fs.open(path) as file:
        assert FileRecords(file).next_offset_at(places[2], places[0]) == 2
    content[places[1] + 11] ^= 1  # its length
    rewrite(world.fs, path, bytes(content))
    with world.fs.open(path) as file:
        assert FileRecords(file).next_offset_at(places[2], places[0]) is None
        assert FileRecords(file).base_offset_at(places[1]) is not None
        assert FileRecords(file).base_offset_at(places[1] + 1) is None


def wrong_offsets(bits: Iterable[int]) -> None:
    for was_clean in (True, False):
        files = image(was_clean=was_clean).files
        logs = [path for path in files if path.match(f"{PLAIN}/*.log")]
        places = [(path, at) for path in logs for at, _ in iter_headers(files[path])]
        # Behind the last batch nothing tells, and after a crash nobody knows where the log ended.
        for path, position in places if was_clean else places[:-1]:
            for bit in bits:
                damaged = bytearray(files[path])
                damaged[position + 7 - bit // 8] ^= 1 << bit % 8
                judge(bytes(damaged), path, was_clean=was_clean)


@pytest.mark.long
@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_every_file_in_every_way(damage: Damage, *, was_clean: bool) -> None:
    """The whole table: right data or a report of damage, whatever is done to which file."""
    for path, content in image(was_clean=was_clean).files.items():
        judge(damage(content), path, was_clean=was_clean)


@pytest.mark.long
@EVERY_FILE
def test_every_file_in_the_place_of_every_other(path: Path) -> None:
    """What a restore into the wrong place leaves: contents that are sound, and not of this file."""
    for was_clean in (True, False):
        files = image(was_clean=was_clean).files
        for content in {*files.values()} if path in files else ():
            judge(content, path, was_clean=was_clean)
