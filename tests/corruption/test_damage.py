"""Every file of a data directory, damaged in every way, after a clean stop.

What is derived from the log is mended; damage of the log is reported with its place; the rest is
refused in a sentence. Nothing wrong is ever served, and nothing unknown is touched.
"""

import contextlib
import errno
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.errors import (
    CorruptCheckpoint,
    CorruptIndex,
    InvalidDataDirectory,
    LogOffline,
    StorageOffline,
    StoredDataCorrupt,
)
from engine.fs import names
from engine.log.index_repair import mending
from engine.log.log import Log
from engine.manager.manager import LogManager
from engine.records.scan import iter_headers
from engine.tools.verify import DirectoryCheck
from engine.types import FetchIsolation
from tests.support.builders import DATA, EVENTS, new_batch
from tests.support.damage import (
    DAMAGES,
    PARTITION,
    SEGMENTS,
    Damage,
    Filled,
    cut_by_a_byte,
    cut_to_nothing,
    fill,
    one_bit_flipped,
    rewrite,
)
from tests.support.logs import batches_in

ISOLATIONS = (FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED)
EVERY_DAMAGE = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
SUFFIXES_OF_INDEXES = (".index", ".timeindex", ".txnindex")


def reads(filled: Filled, log: Log) -> Iterator[StoredDataCorrupt | None]:
    """Read from every offset; fail on anything wrong or left out, yield the damage reported."""
    end = log.watermarks.log_end_offset
    for isolation in ISOLATIONS:
        truth = filled.committed if isolation is FetchIsolation.TXN_COMMITTED else filled.values
        for offset in range(end):
            for max_bytes in (1, 700, 1 << 20):
                try:
                    fetched = log.reader.read(offset, max_bytes=max_bytes, isolation=isolation)
                except StoredDataCorrupt as damage:
                    yield damage
                    continue
                assert fetched is not None
                assert fetched.next_offset > offset
                found = {
                    record.offset: record.value
                    for batch in batches_in(fetched.data)
                    if not batch.header.is_control
                    for record in batch.records()
                    if record.offset >= offset
                }
                expected = {at: truth[at] for at in truth if offset <= at < fetched.next_offset}
                assert found == expected, (offset, max_bytes, isolation)
                yield None


def ensure_times(filled: Filled, log: Log) -> None:
    """Look up every time; nothing but the first offset of at least that time will do."""
    for time in sorted(set(filled.times.values())):
        found = log.reader.offset_for_time(time)
        assert found is not None
        assert found.offset == min(at for at in filled.times if filled.times[at] >= time)


def ensure_all_served(filled: Filled, manager: LogManager) -> None:
    """Fail unless everything that was appended is there and found."""
    log = manager.log(EVENTS)
    assert log.watermarks.high_watermark == max(filled.times) + 1
    assert all(damage is None for damage in reads(filled, log))
    ensure_times(filled, log)
    log.maintenance.check_invariants()


def segment_file(base_offset: int, suffix: str) -> Path:
    return PARTITION / f"{base_offset:020d}{suffix}"


@EVERY_DAMAGE
@pytest.mark.parametrize("base_offset", SEGMENTS)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_never_misleads_a_reader(
    suffix: str, base_offset: int, damage: Damage
) -> None:
    """Whatever an index holds, every record is found by offset and by time."""
    filled = fill()
    filled.damage(segment_file(base_offset, suffix), damage)
    manager = filled.reopen()
    ensure_all_served(filled, manager)
    manager.close()


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("base_offset", SEGMENTS)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_cannot_be_read_is_rebuilt(
    suffix: str, base_offset: int, *, is_open: bool
) -> None:
    """The log has all that it had; a bad page of it kills neither the start nor a reader."""
    filled = fill()
    path = segment_file(base_offset, suffix)
    if is_open:
        manager = filled.reopen()
        filled.world.disk.spoil(path)
    else:
        filled.world.disk.spoil(path)
        check = DirectoryCheck(filled.world.fs, DATA)
        assert [one.file for one in check.findings() if one.is_problem] == [path]
        manager = filled.reopen()
    ensure_all_served(filled, manager)
    manager.close()
    ensure_all_served(filled, filled.reopen())


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_of_another_segment_never_misleads_a_reader(suffix: str) -> None:
    """The contents of a neighbour's index lead nowhere, and are replaced."""
    filled = fill()
    foreign = filled.world.fs.read_bytes(segment_file(60, suffix))[:-8] + b"\x00\x00\x00\x09" * 2
    rewrite(filled.world.fs, segment_file(30, suffix), foreign)
    ensure_all_served(filled, filled.reopen())


def test_an_index_rebuilt_under_a_reader_stays_rebuilt(caplog: pytest.LogCaptureFixture) -> None:
    """The first look-up that an entry misleads rebuilds the index; a restart finds it right."""
    filled = fill()
    path = segment_file(0, ".index")
    content = filled.world.fs.read_bytes(path)
    assert len(content) >= 24, "an entry in the middle is needed"
    rewrite(filled.world.fs, path, content[:4] + b"\x00\x00\x00\x05" + content[8:])
    manager = filled.reopen()
    with caplog.at_level(logging.WARNING):
        ensure_all_served(filled, manager)
    assert [r.message for r in caplog.records if "rebuilding its indexes" in r.message]
    manager.close()
    assert filled.world.fs.read_bytes(path) == content


def test_a_read_that_must_not_wait_leaves_mending_to_one_that_may() -> None:
    """On the event loop a wrong index is an answer that has to come from the disk."""
    filled = fill()
    path = segment_file(0, ".index")
    content = filled.world.fs.read_bytes(path)
    rewrite(filled.world.fs, path, content[:4] + b"\x00\x00\x00\x05" + content[8:])
    log = filled.reopen().log(EVENTS)
    offset = int.from_bytes(content[:4], "big")
    assert log.reader.read(offset, max_bytes=1, cached_only=True) is None
    assert log.reader.read(offset, max_bytes=1) is not None
    assert log.reader.read(offset, max_bytes=1, cached_only=True) is not None


def test_an_index_that_is_wrong_again_once_it_is_rebuilt_is_an_error() -> None:
    """Not a look-up without an end."""
    log = fill().reopen().log(EVENTS)
    looks: list[int] = []

    def look() -> None:
        looks.append(0)
        raise CorruptIndex("wrong", file=str(segment_file(0, ".index")))

    with pytest.raises(CorruptIndex, match="wrong"):
        mending(log._core, look)  # noqa: SLF001  # what its readers hold
    assert len(looks) == 2


@EVERY_DAMAGE
@pytest.mark.parametrize("base_offset", SEGMENTS)
def test_a_damaged_transaction_index_never_lets_an_aborted_record_out(
    base_offset: int, damage: Damage
) -> None:
    """Readers of committed records get the right ones, or an error; the others notice nothing."""
    filled = fill()
    filled.damage(segment_file(base_offset, ".txnindex"), damage)
    log = filled.reopen().log(EVENTS)
    truth = filled.values
    fetched = log.reader.read(0, max_bytes=1 << 20)
    assert fetched is not None
    data_offsets = [
        record.offset
        for batch in batches_in(fetched.data)
        if not batch.header.is_control
        for record in batch.records()
    ]
    assert data_offsets == list(truth)
    for offset in range(log.watermarks.log_end_offset):
        with contextlib.suppress(_NeedsRepairError), _repair_advised():
            fetched = log.reader.read(offset, max_bytes=1, isolation=FetchIsolation.TXN_COMMITTED)
            assert fetched is not None
            for batch in batches_in(fetched.data):
                assert all(record.offset in filled.committed for record in batch.records())


class _NeedsRepairError(Exception):
    """The error names the file and what to do."""


@contextlib.contextmanager
def _repair_advised() -> Iterator[None]:
    try:
        yield
    except CorruptIndex as error:
        if ".txnindex" in str(error) and "tidelog repair" in str(error):
            raise _NeedsRepairError from error
        raise


@EVERY_DAMAGE
@pytest.mark.parametrize("offset", [30, 60, 90])
def test_a_damaged_snapshot_is_replaced(offset: int, damage: Damage) -> None:
    """Producers are known again as if nothing had happened, and every record is served."""
    filled = fill()
    path = PARTITION / names.snapshot_name(offset)
    before = filled.reopen()
    known = before.log(EVENTS).producers.active()
    before.close()
    filled.damage(path, damage)
    manager = filled.reopen()
    ensure_all_served(filled, manager)
    producers = manager.log(EVENTS).producers.active()
    assert [(p.producer_id, p.last_sequence) for p in producers] == [
        (p.producer_id, p.last_sequence) for p in known
    ]


def test_a_snapshot_of_another_log_is_dropped() -> None:
    """One that knows of offsets beyond its own cannot be this log's."""
    filled = fill()
    path = PARTITION / names.snapshot_name(30)
    rewrite(filled.world.fs, path, filled.world.fs.read_bytes(PARTITION / names.snapshot_name(90)))
    filled.world.fs.remove(PARTITION / names.snapshot_name(90))
    filled.world.fs.remove(PARTITION / names.snapshot_name(60))
    manager = filled.reopen()
    assert {p.producer_id for p in manager.log(EVENTS).producers.active()} == {11, 12}
    ensure_all_served(filled, manager)


@EVERY_DAMAGE
def test_damaged_leader_epochs_are_made_from_the_batches(damage: Damage) -> None:
    """The epoch does not fall, whatever the checkpoint holds."""
    filled = fill()
    path = PARTITION / names.LEADER_EPOCH_CHECKPOINT
    manager = filled.reopen()
    manager.log(EVENTS).truncate_to(85)
    epoch = manager.log(EVENTS).reader.leader_epoch
    manager.close()
    filled.damage(path, damage)
    log = filled.reopen().log(EVENTS)
    assert epoch == 1
    assert log.reader.leader_epoch in {0, epoch}, "no batch carries the epoch of the truncation yet"
    assert not [read for read in reads(filled, log) if read is not None]


def test_lost_leader_epochs_are_made_from_the_batches() -> None:
    """A missing checkpoint does not count as empty.

    The next append has the epoch of the last one.
    """
    filled = fill()
    manager = filled.reopen()
    manager.log(EVENTS).truncate_to(85)
    manager.log(EVENTS).append(new_batch())
    manager.close()
    filled.world.fs.remove(PARTITION / names.LEADER_EPOCH_CHECKPOINT)
    log = filled.reopen().log(EVENTS)
    assert log.reader.leader_epoch == 1


@EVERY_DAMAGE
@pytest.mark.parametrize(
    "name",
    [
        names.RECOVERY_POINT_CHECKPOINT,
        names.HIGH_WATERMARK_CHECKPOINT,
        names.LOG_START_CHECKPOINT,
        names.CLEAN_SHUTDOWN_FILE,
    ],
)
def test_a_damaged_checkpoint_costs_no_record(name: str, damage: Damage) -> None:
    """What the small files above the logs say is never believed against the logs."""
    filled = fill()
    filled.damage(DATA / name, damage)
    ensure_all_served(filled, filled.reopen())


def test_a_log_start_beyond_a_clean_log_does_not_wipe_it() -> None:
    """A flipped digit in a checkpoint must not start the log again."""
    filled = fill()
    rewrite(filled.world.fs, DATA / names.LOG_START_CHECKPOINT, b"0\n1\nevents 0 900\n")
    ensure_all_served(filled, filled.reopen())


@EVERY_DAMAGE
def test_a_damaged_partition_metadata_is_written_again(damage: Damage) -> None:
    """The topics file knows the id as well."""
    filled = fill()
    path = PARTITION / names.PARTITION_METADATA
    content = filled.world.fs.read_bytes(path)
    filled.damage(path, damage)
    if damage is one_bit_flipped:
        return  # another valid id: a broker may have given it
    ensure_all_served(filled, filled.reopen())
    assert filled.world.fs.read_bytes(path) == content


@pytest.mark.parametrize(
    "damage", [d for d in DAMAGES if d not in (one_bit_flipped, cut_by_a_byte)]
)
def test_a_damaged_topics_file_is_refused_with_what_to_do(damage: Damage) -> None:
    """Nothing else knows the configuration, so nothing is guessed, and nothing changed."""
    filled = fill()
    path = DATA / names.TOPICS_FILE
    filled.damage(path, damage)
    content = filled.world.fs.read_bytes(path)
    with pytest.raises(CorruptCheckpoint, match=r"tidelog-topics\.json.*move it away"):
        filled.reopen()
    assert filled.world.fs.read_bytes(path) == content


def damage_reported(filled: Filled) -> Iterator[tuple[str, int, int]]:
    """Open and read everything; yield file, position and offset of what is reported."""
    try:
        log = filled.reopen().log(EVENTS)
    except LogOffline as offline:
        facts: dict[str, Any] = {**offline.facts()}
        yield facts["file"], facts["position"], facts["offset"]
    else:
        for error in reads(filled, log):
            if error is not None:
                yield str(error.file), error.position, error.offset


@pytest.mark.parametrize("batches_left", [0, 3])
def test_a_log_file_that_ends_early_is_reported_at_the_start(batches_left: int) -> None:
    """Cut at a batch boundary nothing is damaged, and yet records that were on disk are gone."""
    filled = fill()
    path = segment_file(30, ".log")
    content = filled.world.fs.read_bytes(path)
    ends = [at + header.size_bytes for at, header in iter_headers(content)]
    rewrite(filled.world.fs, path, content[: [0, *ends][batches_left]])
    damage = filled.reopen().log(EVENTS).durability.recovery.damage
    assert damage is not None
    assert f"offsets {30 + 5 * batches_left} to 59 are missing" in damage


CUTS_AT_A_BATCH = (cut_to_nothing,)


@pytest.mark.parametrize(
    "damage", [d for d in DAMAGES if d not in CUTS_AT_A_BATCH], ids=lambda damage: damage.__name__
)
@pytest.mark.parametrize("base_offset", SEGMENTS)
@pytest.mark.parametrize("has_snapshots", [True, False], ids=["snapshots", "no snapshots"])
def test_damage_of_a_log_file_is_reported_and_never_served(
    base_offset: int, damage: Damage, *, has_snapshots: bool
) -> None:
    """The log is offline with the place in its error, or a read reports it.

    All other segments are served. Without snapshots, the producers are read from the damaged file
    too.
    """
    filled = fill()
    path = segment_file(base_offset, ".log")
    filled.damage(path, damage)
    if not has_snapshots:
        fs = filled.world.fs
        for name in fs.list_directory(PARTITION):
            if name.endswith(".snapshot"):
                fs.remove(PARTITION / name)
    for file, position, offset in damage_reported(filled):
        assert file == str(path)
        assert 0 <= position <= filled.world.fs.size_bytes(path)
        assert base_offset <= offset <= base_offset + 30


FILES_ABOVE = (
    names.LOCK_FILE,
    names.CLEAN_SHUTDOWN_FILE,
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.TOPICS_FILE,
)


@pytest.mark.parametrize("name", FILES_ABOVE)
def test_a_directory_in_the_place_of_a_file_is_refused(name: str) -> None:
    """The sentence names it and says what to do; neither it nor what is in it is touched."""
    path = DATA / name
    filled = fill()
    filled.world.fs.remove(path, missing_ok=True)
    filled.world.fs.make_directory(path / "mine", parents=True)
    sentence = f"{re.escape(str(path))} is not a regular file.*move"
    with pytest.raises(InvalidDataDirectory, match=sentence):
        filled.reopen()
    assert filled.world.fs.is_directory(path / "mine")


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ("read", DATA / names.RECOVERY_POINT_CHECKPOINT),
        ("read", DATA / names.TOPICS_FILE),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_file_that_may_not_be_read_is_refused(call: str, path: Path) -> None:
    """The sentence names the cause and says what to do; nothing is taken for missing."""
    filled = fill()
    filled.world.restart(power_cut=False)
    filled.world.disk.fail(call, error=errno.EACCES, path_end=str(path))
    with pytest.raises(StorageOffline, match=r"Permission denied.*let this user read"):
        filled.world.open_manager()


def test_what_is_unknown_is_left_alone() -> None:
    """Files and folders that are not ours outlive starts, retention and a clean stop."""
    filled = fill()
    fs = filled.world.fs
    unknown = [
        DATA / "notes.txt",
        PARTITION / "dump.txt",
        PARTITION / "00000000000000000030.log.orig",
        PARTITION / "5.log",
        PARTITION / "backup",
    ]
    for path in unknown:
        with fs.open(path, create=True) as file:
            file.append(b"mine")
    manager = filled.reopen()
    ensure_all_served(filled, manager)
    manager.log(EVENTS).maintenance.run_retention()
    manager.close()
    assert [fs.read_bytes(path) for path in unknown] == [b"mine"] * len(unknown)
