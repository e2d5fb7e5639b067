"""Data directories with files of every kind, what their logs hold, and who judges damage to them.

No table says what is to happen to which file. Whatever it is: a start either refuses, in a sentence
that names the file, and changes nothing, or every record that is served is right, every record that
is missing was reported, and what is not ours is as it was.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType

from engine.cleaner.cleaner import LogCleaner
from engine.errors import CorruptIndex, EngineError, StoredDataCorrupt
from engine.fs import names
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.records.control import ControlType, build_end_marker
from engine.types import AppendOrigin, FetchIsolation, TopicPartition
from tests.corruption.untold import Believed, believed
from tests.support.builders import World, new_batch, values_of
from tests.support.compaction import BY_HAND, keyed
from tests.support.golden import golden_archive
from tests.support.logs import ALL_BYTES, Records, fill_segments, values_in
from tests.support.segments import batch_at
from tests.support.time import START_MS
from tests.unit.engine.manager.test_directories import A, B, opened

NAMES_OF_LOGS = ("jumped", "plain", "compacted", "decided")
JUMPED, PLAIN, COMPACTED, DECIDED = (TopicPartition(name, 0) for name in NAMES_OF_LOGS)
NOT_THE_ENGINES = (names.API_KEYS_FILE, names.META_PROPERTIES, "notes.txt")
ISOLATIONS = (FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED)

View = tuple[TopicPartition, FetchIsolation]


class Verdict(enum.Enum):
    """How a damage ended."""

    SERVED = "all records served"
    TOLD = "damage told, the rest served"
    BELIEVED = "believed, as nobody can know better"
    REFUSED = "start refused"


@dataclass(frozen=True)
class Image:
    """Two data directories, and what readers of each isolation find in their logs."""

    files: Mapping[Path, bytes]
    records: Mapping[View, Records]

    def restored(self, other_contents: Mapping[Path, bytes] = MappingProxyType({})) -> World:
        """The same files on a disk of their own, some of them with other contents."""
        world = World()
        world.disk.begin_with({**self.files, **other_contents})
        return world


# -- making them ---------------------------------------------------------------------------------


def files_of(world: World) -> Iterator[Path]:
    fs = world.fs
    here = [path / name for path in (A, B) for name in fs.list_directory(path)]
    folders = [path for path in here if fs.is_directory(path)]
    inside = [path / name for path in folders for name in fs.list_directory(path)]
    return (path for path in (*here, *inside) if not fs.is_directory(path))


def records_of(
    log: Log, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK, *, in_pieces: bool = True
) -> Records:
    """Return all records of a log by offset.

    In pieces they come from as many reads as there are batches, at most 100.
    """
    max_bytes = max(1, log.reader.size_bytes // 100 - 200) if in_pieces else ALL_BYTES
    found: Records = {}
    offset = log.watermarks.log_start_offset
    while offset < log.watermarks.bound(isolation).offset:
        fetched = log.reader.read(offset, max_bytes=max_bytes, isolation=isolation)
        assert fetched is not None
        assert fetched.next_offset > offset
        values = values_in(bytes(fetched.data))
        found |= {at: value for at, value in values.items() if at >= offset}
        offset = fetched.next_offset
    return found


def everything_in(manager: LogManager) -> Mapping[View, Records]:
    return MappingProxyType(
        {
            (log.topic_partition, isolation): records_of(log, isolation)
            for log in manager.logs()
            for isolation in ISOLATIONS
        }
    )


@cache
def image(*, was_clean: bool) -> Image:
    """Logs that jumped, with several segments, compacted, and with transactions."""
    world = World()
    manager = opened(world)
    settings = {"segment.index.bytes": "1200", "index.interval.bytes": "100", "retention.ms": "-1"}
    size_bytes = 3 * len(batch_at(0))
    manager.create_topic("jumped", 1, {**settings, "segment.bytes": size_bytes})
    manager.create_topic("plain", 1, settings)
    manager.create_topic("compacted", 1, {**settings, "cleanup.policy": "compact"})
    manager.create_topic("decided", 1, settings)
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
    decide(manager.log(DECIDED))
    for log in manager.logs():
        log.durability.flush()
    clean(world, manager)
    manager.checkpoint()
    records = everything_in(manager)
    if was_clean:
        manager.close()
    for name in NOT_THE_ENGINES:
        with world.fs.open(A / name, create=True) as file:
            file.append(b"somebody else's")
    world.restart(power_cut=False)
    files = {path: world.fs.read_bytes(path) for path in files_of(world)}
    return Image(MappingProxyType(files), records)


def decide(log: Log) -> None:
    """Abort a transaction and commit another in each of two segments."""
    for sequence in (0, 2):
        for producer_id, how in ((21, ControlType.ABORT), (22, ControlType.COMMIT)):
            log.append(
                values_of(
                    (b"%s %d" % (how.name.encode(), sequence + at) for at in range(2)),
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=sequence,
                    is_transactional=True,
                )
            )
            marker = build_end_marker(
                how,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=START_MS,
            )
            log.append(marker, origin=AppendOrigin.COORDINATOR)
        if sequence == 0:
            log.roll()


def clean(world: World, manager: LogManager) -> None:
    cleaner = LogCleaner(manager, clock=world.clock, config=BY_HAND, recorder=world.recorder)
    cleaner.start()
    cleaner.clean_now(manager.log(COMPACTED))
    cleaner.stop()


@cache
def golden_image(archive: str, partitions: tuple[str, ...]) -> Image:
    """Partitions that a real broker wrote, as they were adopted; stopped cleanly since."""
    world = World()
    for name in partitions:
        world.disk.put(golden_archive(archive) / name, A / name)
        for note in ("expected.json", "dump.txt"):
            world.fs.remove(A / name / note, missing_ok=True)
    world.fs.make_directory(B)
    manager = opened(world)
    records = everything_in(manager)
    manager.close()
    files = {path: world.fs.read_bytes(path) for path in files_of(world)}
    return Image(MappingProxyType(files), records)


# -- judging -------------------------------------------------------------------------------------


def judge(before: Image, path: Path, content: bytes) -> Verdict:
    """Put the content in place of a file, open and read everything, twice.

    Fail on a wrong record, an unreported loss, or a change of a foreign file, except where the loss
    cannot be detected (`untold`). The state that the first start leaves is opened only once for all
    damages that lead to it, because a start depends on nothing else.
    """
    world = before.restored({path: content})
    foreign = [A / name for name in NOT_THE_ENGINES if A / name in before.files]
    others = {other: world.fs.read_bytes(other) for other in foreign}
    records = dict(before.records)
    verdict = Verdict.SERVED
    left: bytes | None = None
    for _ in range(2):
        try:
            manager = opened(world)
        except EngineError as error:
            ensure_refused_well(error, world, path, content)
            return Verdict.REFUSED
        logs = {log.topic_partition: log for log in manager.logs()}
        assert logs.keys() == {log for log, _ in before.records}
        for (log, isolation), expected in records.items():
            damaged = believed(before.files, path, content, log, expected)
            found = ensure_right(logs[log], isolation, expected, path, damaged)
            if found != expected:
                is_told = found is None or was_told(logs[log])
                verdict = Verdict.TOLD if is_told else Verdict.BELIEVED
            records[log, isolation] = expected if found is None else found
        manager.close()
        world.restart(power_cut=True)
        if left is None:
            left = digest_of(world, before, path)
            if verdict is Verdict.SERVED and left in _left_and_served:
                break
    assert left is not None
    if verdict is Verdict.SERVED:
        _left_and_served.add(left)
    assert {other: world.fs.read_bytes(other) for other in others} == others
    return verdict


_left_and_served: set[bytes] = set()
"""What first starts have left, in which all was found again."""


def digest_of(world: World, before: Image, path: Path) -> bytes:
    """Return what tells apart all that a start finds, and what is compared with it."""
    digest = blake2b(f"{id(before)} {path.parent}".encode())
    for found in sorted(files_of(world)):
        content = world.fs.read_bytes(found)
        digest.update(f"{found} {len(content)} ".encode() + content)
    return digest.digest()


def ensure_refused_well(error: EngineError, world: World, path: Path, content: bytes) -> None:
    assert path.name in str(error), "it says which file it is"
    assert world.fs.read_bytes(path) == content, "and leaves it for somebody who knows"


def ensure_right(
    log: Log,
    isolation: FetchIsolation,
    records: Records,
    path: Path,
    damaged: Believed | None = None,
) -> Records | None:
    """Return what is served: it must be the original, or the loss must have been reported.

    No report is needed where the damaged file cannot be checked. None if a read raised an error
    instead. A log without damaged files of its own is read as a whole, because only its start and
    end may be wrong.
    """
    try:
        found = records_of(log, isolation, in_pieces=log.directory == path.parent)
    except StoredDataCorrupt as damage:
        ensure_reported_well(damage, path)
        return None
    except CorruptIndex as damage:
        ensure_named(damage, path)
        return None
    own, strangers = Believed(records, {}) if damaged is None else damaged
    assert {*found.values()} <= {*records.values(), *strangers.values()}
    is_nothing_lost = own.items() <= found.items() <= (records | strangers).items()
    assert is_nothing_lost or was_told(log), log.durability.recovery
    if path.suffix != names.LOG_SUFFIX:
        log.maintenance.check_invariants()
    return found


def was_told(log: Log) -> bool:
    """Whether the start said of the log that something is missing or wrong."""
    recovery = log.durability.recovery
    return bool(recovery.damage or recovery.truncated_bytes or recovery.removed_segments)


def ensure_named(damage: CorruptIndex, path: Path) -> None:
    """If a log and an index disagree, the index must be named, because it can be rebuilt."""
    assert (path.stem if path.suffix == names.LOG_SUFFIX else path.name) in str(damage)


def ensure_reported_well(damage: StoredDataCorrupt, path: Path) -> None:
    assert damage.file == path
    assert damage.position >= 0
