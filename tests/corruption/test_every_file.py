"""Every file of two data directories, damaged in every way, after a clean stop and after a crash.

What becomes of it is judged by `tests.corruption.images`.
"""

from collections.abc import Iterable
from itertools import cycle, islice
from pathlib import Path

import pytest

from engine.fs import names
from engine.records.scan import iter_headers
from engine.segment.file_records import FileRecords
from engine.types import FetchIsolation, TopicPartition
from tests.corruption.images import (
    COMPACTED,
    NOT_THE_ENGINES,
    PLAIN,
    golden_image,
    image,
    judge,
)
from tests.corruption.untold import believed
from tests.support.damage import DAMAGES, Damage, rewrite
from tests.support.segments import batch_at
from tests.unit.engine.manager.test_directories import A, opened


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
        names.txn_index_name(0),
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
        judge(image(was_clean=was_clean), path, damage(content))


def test_a_wrong_offset_is_no_place_of_a_record() -> None:
    """The offset that a batch begins with is not under its checksum: its neighbours tell.

    Lower or higher by little, so far away that no index of its segment can express it, or negative.
    """
    wrong_offsets(bits=(0, 2, 33, 63))


@pytest.mark.long
def test_no_bit_of_an_offset_makes_it_the_place_of_a_record() -> None:
    """The whole of it, of every batch."""
    wrong_offsets(bits=range(64))


@pytest.mark.parametrize("is_index_there", [True, False])
def test_a_compacted_segment_that_lost_every_byte_is_reported(*, is_index_there: bool) -> None:
    """Offsets may be missing there, yet an index has entries for something; if it is there."""
    world = image(was_clean=True).restored()
    (path, *_) = [one for one in image(was_clean=True).files if one.match(f"{COMPACTED}/*.log")]
    rewrite(world.fs, path, b"")
    if not is_index_there:
        for suffix in names.INDEX_SUFFIXES:
            world.fs.remove(path.with_suffix(suffix), missing_ok=True)
    damage = opened(world).log(COMPACTED).durability.recovery.damage
    assert damage == (f"{path} is empty, but its indexes are not" if is_index_there else None)


@pytest.mark.parametrize("is_index_sound", [True, False])
def test_a_compacted_segment_that_lost_its_end_is_reported(*, is_index_sound: bool) -> None:
    """Offsets may be missing, yet the offset index points past the end of the log file.

    Found by `make damage`, seed 8008252.
    """
    before = golden_image("compacted", ("compact-txn-0",))
    world = before.restored()
    path = A / "compact-txn-0" / names.log_name(120)
    index = path.with_suffix(names.INDEX_SUFFIX)
    headers = [position for position, _ in iter_headers(before.files[path])]
    rewrite(world.fs, path, before.files[path][: headers[2]])
    if not is_index_sound:
        rewrite(world.fs, index, before.files[index][:-1])
    damage = opened(world).log(TopicPartition("compact-txn", 0)).durability.recovery.damage
    told = f"{path} ends before what {index.name} points at"
    assert damage == (told if is_index_sound else None)


def test_only_undetectable_losses_may_be_unreported() -> None:
    """A lost end must be reported.

    Foreign files that fit, or another log start, cannot be detected.
    """
    before = image(was_clean=True)
    records = before.records[PLAIN, FetchIsolation.HIGH_WATERMARK]
    path = next(one for one in before.files if one.match(f"{PLAIN}/{names.log_name(0)}"))
    starts = path.parents[1] / names.LOG_START_CHECKPOINT

    def must_stay(damaged: Path, content: bytes) -> list[int]:
        return [*believed(before.files, damaged, content, PLAIN, records).own]

    whole = before.files[path]
    batches = [whole[at : at + header.size_bytes] for at, header in iter_headers(whole)]
    strangers = [bytes(batch_at(at)) for at in range(3)]
    assert must_stay(path, b"".join(batches[:3])) == [*records]
    assert must_stay(path, b"".join(strangers)) == [*records][3:]
    assert must_stay(path, b"".join(strangers) + batches[3]) == [*records][3:]
    assert must_stay(path, batches[0] + b"".join(strangers)) == [*records]
    assert must_stay(starts, b"0\n1\nplain 0 2\n") == [*records][2:]
    assert must_stay(starts, b"0\n1\nplain 1 2\n") == [*records]


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
        # After the last batch nothing shows a loss, and after a crash the end of the log is
        # unknown.
        for path, position in places if was_clean else places[:-1]:
            for bit in bits:
                damaged = bytearray(files[path])
                damaged[position + 7 - bit // 8] ^= 1 << bit % 8
                judge(image(was_clean=was_clean), path, bytes(damaged))


@pytest.mark.long
@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_every_file_in_every_way(damage: Damage, *, was_clean: bool) -> None:
    """The whole table: right data or a report of damage, whatever is done to which file."""
    for path, content in image(was_clean=was_clean).files.items():
        judge(image(was_clean=was_clean), path, damage(content))


@pytest.mark.long
@EVERY_FILE
def test_every_file_in_the_place_of_every_other(path: Path) -> None:
    """What a restore into the wrong place leaves: contents that are sound, and not of this file."""
    for was_clean in (True, False):
        files = image(was_clean=was_clean).files
        for content in {*files.values()} if path in files else ():
            judge(image(was_clean=was_clean), path, content)
