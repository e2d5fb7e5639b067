"""The findings of a check of a data directory, which writes nothing."""

import shutil
import struct
from pathlib import Path

import pytest

from engine.checkpoint.tidelog_files import TopicEntry, TopicsFile
from engine.fs import names
from engine.fs.posix import PosixFileSystem
from engine.records.batch import stamp_crc
from engine.records.header import HEADER_BYTES, parse_header
from engine.segment.file_records import FileRecords
from engine.state.producer_entry import BatchMetadata, ProducerEntry
from engine.state.producer_snapshots import encode_snapshot
from engine.tools.findings import Finding, Severity
from engine.tools.verify import DirectoryCheck
from tests.support.builders import DATA, EVENTS, TOPIC_ID, new_batch
from tests.support.damage import (
    DAMAGES,
    PARTITION,
    SEGMENTS,
    Damage,
    Filled,
    bits_flipped,
    cut_by_a_byte,
    cut_in_half,
    cut_to_nothing,
    fill,
    grown,
    one_bit_flipped,
    reversed_bytes,
    rewrite,
    zero_filled,
)
from tests.support.golden import golden_archive
from tests.support.legacy import legacy_wrapper
from tests.support.time import START_MS


def check(filled: Filled) -> list[Finding]:
    """All findings, by a check that must not change anything."""
    changes = len(filled.world.disk.changes)
    findings = list(DirectoryCheck(filled.world.fs, DATA).findings())
    assert len(filled.world.disk.changes) == changes, "a check wrote something"
    return findings


def problems(filled: Filled) -> list[tuple[Severity, Path]]:
    return [(one.severity, one.file) for one in check(filled) if one.is_problem]


def segment_file(base_offset: int, suffix: str) -> Path:
    return PARTITION / f"{base_offset:020d}{suffix}"


def faults(filled: Filled, path: Path) -> list[str]:
    """Return the findings about one file."""
    return [one.detail for one in check(filled) if one.file == path]


def crash_after_an_append(filled: Filled) -> None:
    """Leave the directory as a process does that ends without a word."""
    manager = filled.reopen()
    manager.log(EVENTS).append(new_batch())
    manager.log(EVENTS).durability.commit()
    filled.world.restart(power_cut=False)


def test_a_directory_that_was_closed_cleanly_has_nothing_to_tell() -> None:
    """Everything was looked at, and there is not even a note."""
    filled = fill()
    sought = DirectoryCheck(filled.world.fs, DATA)
    assert list(sought.findings()) == []
    assert sought.checked.partitions == 1
    assert sought.checked.segments == len(SEGMENTS)
    assert sought.checked.batches == 8 * len(SEGMENTS)
    assert sought.checked.ends == {"events-0": 90}


@pytest.mark.parametrize("place", [HEADER_BYTES, HEADER_BYTES + 4, -1])
def test_a_batch_that_no_reader_can_read_is_damage_whatever_its_checksum(place: int) -> None:
    """As the service judges it, which answers 500 for its records.

    The checksum proves that the bytes are those that were written, by whatever program.
    """
    filled = fill()
    path = segment_file(SEGMENTS[0], ".log")
    content = bytearray(filled.world.fs.read_bytes(path))
    size_bytes = parse_header(content, 0).size_bytes
    content[place if place > 0 else size_bytes - 1] ^= 0x55
    stamp_crc(content, 0, size_bytes)
    rewrite(filled.world.fs, path, bytes(content))
    found = [one for one in check(filled) if one.severity is Severity.DAMAGE]
    assert [(one.file, one.position) for one in found][:1] == [(path, 0)]
    assert "its checksum is right" in found[0].detail


@pytest.mark.parametrize("archive", ["clean", "compacted"])
def test_what_a_broker_wrote_keeps_every_promise(archive: str, tmp_path: Path) -> None:
    """Of its files only those of the test itself are unknown."""
    copy = tmp_path / archive
    shutil.copytree(golden_archive(archive), copy)
    (copy / names.CLEAN_SHUTDOWN_FILE).touch()
    sought = DirectoryCheck(PosixFileSystem(), copy)
    found = list(sought.findings())
    assert [one for one in found if one.is_problem] == []
    assert {one.file.name for one in found} <= {
        "bootstrap.checkpoint",
        "dump.txt",
        "expected.json",
        names.META_PROPERTIES,
    }
    assert sought.checked.batches > 100


@pytest.mark.parametrize(
    ("suffix", "damages"),
    [
        (".index", [cut_by_a_byte, grown, bits_flipped, one_bit_flipped, reversed_bytes]),
        (
            ".timeindex",
            [cut_in_half, cut_to_nothing, cut_by_a_byte, grown, bits_flipped, reversed_bytes],
        ),
        (".txnindex", list(DAMAGES)),
        (".snapshot", list(DAMAGES)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_derived_file_that_disagrees_with_the_log_is_found(
    suffix: str, damages: list[Damage]
) -> None:
    """It can be rebuilt from the log, and the finding names the files to remove for that."""
    for damage in damages:
        filled = fill()
        path = segment_file(30, suffix)
        filled.damage(path, damage)
        (finding,) = (one for one in check(filled) if one.is_problem)
        assert (finding.severity, finding.file) == (Severity.DERIVED, path), damage
        assert path in finding.stale_files
        assert path.name in finding.sentence(DATA)


@pytest.mark.parametrize(
    ("damage", "position"),
    [
        (cut_in_half, None),
        (cut_by_a_byte, None),
        (zero_filled, 0),
        (bits_flipped, 0),
        (grown, None),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_damage_of_a_log_file_is_found_with_its_place(damage: Damage, position: int | None) -> None:
    """The finding has file, byte and offset."""
    filled = fill()
    path = segment_file(30, ".log")
    filled.damage(path, damage)
    finding = next(one for one in check(filled) if one.severity is Severity.DAMAGE)
    assert finding.file == path
    assert 30 <= finding.offset <= 60
    assert position is None or finding.position == position


def test_every_damaged_batch_is_found() -> None:
    """The scan continues after a batch with a wrong checksum."""
    filled = fill()
    path = segment_file(0, ".log")
    content = bytearray(filled.world.fs.read_bytes(path))
    for at in (len(content) // 4, len(content) // 2):
        content[at] ^= 1
    rewrite(filled.world.fs, path, bytes(content))
    damaged = [one for one in check(filled) if one.severity is Severity.DAMAGE]
    assert [one.file for one in damaged] == [path, path]
    assert damaged[0].position < damaged[1].position


def test_missing_offsets_are_found_where_nothing_was_compacted() -> None:
    """A log file that is gone leaves a gap between its neighbours, and orphans."""
    filled = fill()
    filled.world.fs.remove(segment_file(30, ".log"))
    found = check(filled)
    (damage,) = (one for one in found if one.severity is Severity.DAMAGE)
    assert "offsets 30 to 59 are missing" in damage.detail
    orphans = {one.file for one in found if "has no .log file" in one.detail}
    assert orphans == {segment_file(30, suffix) for suffix in names.INDEX_SUFFIXES}


def test_batches_of_another_place_are_found() -> None:
    """Offsets that descend, or reach into the next segment, do not belong to this log."""
    filled = fill()
    fs = filled.world.fs
    rewrite(fs, segment_file(30, ".log"), fs.read_bytes(segment_file(60, ".log")))
    found = [one for one in check(filled) if one.severity is Severity.DAMAGE]
    assert any("reaches into the next segment" in one.detail for one in found)
    rewrite(fs, segment_file(30, ".log"), fs.read_bytes(segment_file(0, ".log")))
    assert any("descend" in one.detail for one in check(filled))


def test_a_log_that_ends_before_what_was_durable_is_found() -> None:
    """A last segment cut at a batch boundary is seen by the checkpoints alone."""
    filled = fill()
    filled.damage(segment_file(60, ".log"), cut_to_nothing)
    found = [one for one in check(filled) if one.severity is Severity.DAMAGE]
    assert {one.file.name for one in found} == {
        names.RECOVERY_POINT_CHECKPOINT,
        names.HIGH_WATERMARK_CHECKPOINT,
    }


@pytest.mark.parametrize("last_offset", [34, 39, 44, 59])
def test_an_index_entry_may_be_for_several_batches(last_offset: int) -> None:
    """Batches of one append share an entry: the first one's place, the last one's offset."""
    filled = fill()
    path = segment_file(30, ".index")
    rewrite(filled.world.fs, path, struct.pack(">ii", last_offset - 30, 0))
    assert faults(filled, path) == []


@pytest.mark.parametrize(
    ("offset", "batch", "shift", "fault"),
    [
        (37, 0, 0, "offset 37 at byte 0 does not end a batch"),
        (39, 1, -3, "does not start a batch"),
        (38, 1, 0, "where the batch up to 39 is"),
        (90, 0, 0, "offset 90 is after the last batch"),
        (59, 7, 9, "is after the last batch"),
    ],
)
def test_an_index_entry_that_leads_astray_is_found(
    offset: int, batch: int, shift: int, fault: str
) -> None:
    """Its place must be the start of a batch, and its offset the end of one from there on."""
    filled = fill()
    fs, path = filled.world.fs, segment_file(30, ".index")
    with fs.open(segment_file(30, ".log"), read_only=True) as file:
        places = [at for at, _ in FileRecords(file).headers(0, file.size_bytes)]
    rewrite(fs, path, struct.pack(">ii", offset - 30, places[batch] + shift))
    (found,) = faults(filled, path)
    assert fault in found


def test_a_time_that_is_not_the_latest_so_far_is_found() -> None:
    """The batch has the entry's time, and one before it has a later one."""
    filled = fill()
    manager = filled.reopen()
    manager.log(EVENTS).append(new_batch(timestamp=START_MS))
    manager.log(EVENTS).durability.commit()
    manager.close()
    path = segment_file(60, ".timeindex")
    assert faults(filled, path) == []
    rewrite(filled.world.fs, path, struct.pack(">qi", START_MS, 30))
    assert faults(filled, path) == [f"a record before offset 90 is later than {START_MS}"]


def test_an_aborted_transaction_is_missed_where_older_batches_are_gone() -> None:
    """Transactions that began and ended in the remaining batches must still be in the index."""
    filled = fill()
    filled.world.fs.remove(segment_file(0, ".log"))
    path = segment_file(30, ".txnindex")
    assert faults(filled, path) == []
    filled.damage(path, cut_to_nothing)
    assert faults(filled, path) == ["it does not name every aborted transaction of the segment"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_found(suffix: str) -> None:
    """It is rebuilt with the others of its segment."""
    filled = fill()
    path = segment_file(30, suffix)
    filled.world.fs.remove(path)
    (finding,) = check(filled)
    assert (finding.severity, finding.file, finding.detail) == (
        Severity.DERIVED,
        path,
        "it is missing",
    )
    assert set(finding.stale_files) == {
        segment_file(30, index_suffix) for index_suffix in names.INDEX_SUFFIXES
    }


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (
            ProducerEntry(11, 0, 0, batches=(BatchMetadata(7, 30, 3, START_MS),)),
            "producer 11 has an offset above it",
        ),
        (ProducerEntry(99, 0), "producer 99 never wrote to this log"),
        (ProducerEntry(11, 0, 0), "producer 11 disagrees with the log"),
    ],
    ids=["beyond", "unknown", "without batches"],
)
def test_a_snapshot_that_the_batches_contradict_is_found(entry: ProducerEntry, fault: str) -> None:
    """A well-formed snapshot of another log is none of this one."""
    filled = fill()
    path = segment_file(30, ".snapshot")
    rewrite(filled.world.fs, path, encode_snapshot([entry]))
    assert faults(filled, path) == [fault]


def test_the_first_offset_of_an_old_wrapper_is_no_gap() -> None:
    """A compressed message of magic 1 names its last offset and holds those before it."""
    filled = fill()
    path = segment_file(60, ".log")
    rewrite(filled.world.fs, path, legacy_wrapper(60, [b"a", b"b", b"c"]))
    assert faults(filled, path) == []
    rewrite(filled.world.fs, path, legacy_wrapper(61, [b"a", b"b", b"c"]))
    assert faults(filled, path) == ["offsets 60 to 60 are missing"]


def test_what_opening_scans_anyway_is_not_judged() -> None:
    """After a crash the indexes of the tail are unreliable, and unfinished appends normal."""
    filled = fill()
    crash_after_an_append(filled)
    filled.damage(segment_file(60, ".index"), reversed_bytes)
    filled.damage(segment_file(60, ".log"), cut_by_a_byte)
    found = check(filled)
    assert [one for one in found if one.is_problem] == []
    (torn,) = (one for one in found if "unfinished append" in one.detail)
    assert (torn.file, torn.offset) == (segment_file(60, ".log"), 90)


def test_damage_that_opening_would_cut_at_is_a_problem() -> None:
    """A whole batch that is wrong is more than an unfinished append."""
    filled = fill()
    crash_after_an_append(filled)
    filled.damage(segment_file(60, ".log"), one_bit_flipped)
    assert [one.severity for one in check(filled) if one.is_problem] == [Severity.DAMAGE]


@pytest.mark.parametrize(
    ("tail", "severity", "what"),
    [
        (bytes(100), Severity.NOTE, "100 bytes of an unfinished append"),
        (b"\xff" * 100, Severity.DAMAGE, "opening cuts the log here: 100 bytes"),
    ],
    ids=["zeros", "nonsense"],
)
def test_only_zeros_after_the_last_batch_are_an_unfinished_append(
    tail: bytes, severity: Severity, what: str
) -> None:
    """A file system leaves zeros for unwritten data; anything else is damage."""
    filled = fill()
    crash_after_an_append(filled)
    path = segment_file(60, ".log")
    filled.damage(path, lambda content: content + tail)
    (finding,) = (one for one in check(filled) if one.file == path)
    assert (finding.severity, finding.offset) == (severity, 91)
    assert finding.is_left_to_opening
    assert what in finding.detail


@pytest.mark.parametrize(
    "name",
    [names.RECOVERY_POINT_CHECKPOINT, names.HIGH_WATERMARK_CHECKPOINT, names.LOG_START_CHECKPOINT],
)
def test_a_damaged_checkpoint_is_found(name: str) -> None:
    """Opening treats it as empty and writes it again."""
    filled = fill()
    filled.damage(DATA / name, zero_filled)
    assert problems(filled) == [(Severity.DERIVED, DATA / name)]


def test_damaged_small_files_of_a_partition_are_found() -> None:
    """Both are rebuilt: one from the topics, one from the batches."""
    filled = fill()
    damaged = [PARTITION / names.PARTITION_METADATA, PARTITION / names.LEADER_EPOCH_CHECKPOINT]
    for path in damaged:
        filled.damage(path, zero_filled)
    assert problems(filled) == [(Severity.DERIVED, path) for path in damaged]


def test_leader_epochs_that_the_batches_contradict_are_found() -> None:
    """A well-formed history of another log is none of this one."""
    filled = fill()
    path = PARTITION / names.LEADER_EPOCH_CHECKPOINT
    rewrite(filled.world.fs, path, b"0\n2\n0 0\n1 40\n")
    assert problems(filled) == [(Severity.DERIVED, path)]


@pytest.mark.parametrize("name", [names.TOPICS_FILE, names.PRODUCER_ID_FILE])
def test_a_file_that_nothing_can_replace_is_a_refusal(name: str) -> None:
    """Only a person can bring it back, or decide to do without."""
    filled = fill()
    manager = filled.reopen()
    manager.allocate_producer()
    manager.close()
    filled.damage(DATA / name, zero_filled)
    assert (Severity.REFUSED, DATA / name) in problems(filled)


def test_directories_are_judged_by_their_names() -> None:
    """Deleted and stray ones are noted, unreadable names refused, tiered storage passed over."""
    filled = fill()
    for name in (
        f"gone-0.{'a' * 32}-delete",
        f"other-0.{'b' * 32}-stray",
        *names.NOT_PARTITIONS,
        "no partition",
    ):
        filled.world.fs.make_directory(DATA / name)
    found = {one.file.name: one.severity for one in check(filled)}
    assert found == {
        f"gone-0.{'a' * 32}-delete": Severity.NOTE,
        f"other-0.{'b' * 32}-stray": Severity.NOTE,
        "no partition": Severity.REFUSED,
    }


@pytest.mark.parametrize(
    "path",
    [
        DATA / names.HIGH_WATERMARK_CHECKPOINT,
        DATA / names.TOPICS_FILE,
        DATA / names.PRODUCER_ID_FILE,
        PARTITION / names.PARTITION_METADATA,
        PARTITION / names.LEADER_EPOCH_CHECKPOINT,
        segment_file(30, ".timeindex"),
        segment_file(30, ".txnindex"),
        segment_file(30, ".snapshot"),
        segment_file(0, ".log.deleted"),
    ],
    ids=lambda path: path.name,
)
def test_directories_in_the_place_of_files_are_refusals(path: Path) -> None:
    """Above the partitions and within, a person has to move them away."""
    filled = fill()
    filled.world.fs.remove(path, missing_ok=True)
    filled.world.fs.make_directory(path)
    assert faults(filled, path) == ["it is not a regular file: move it away"]
    assert (Severity.REFUSED, path) in problems(filled)


def test_a_missing_topic_id_is_a_note() -> None:
    """Opening creates the file from the topics file."""
    filled = fill()
    filled.world.fs.remove(PARTITION / names.PARTITION_METADATA)
    (finding,) = check(filled)
    assert (finding.severity, finding.file.name) == (Severity.NOTE, names.PARTITION_METADATA)
    assert finding.is_left_to_opening


def test_a_missing_partition_is_found() -> None:
    """Opening would create an empty one, silently."""
    filled = fill()
    topics = TopicsFile(filled.world.fs, DATA)
    adopted = TopicEntry(TOPIC_ID, 3, adopted=True, added_partitions=1)
    topics.write({**topics.read(), "other": TopicEntry(TOPIC_ID, 1), "adopted": adopted})
    expected = {(Severity.DAMAGE, DATA / name) for name in ("adopted-2", "other-0")}
    assert set(problems(filled)) == expected


def test_leftovers_and_unknown_files_are_notes() -> None:
    """They are not problems: opening removes leftovers and ignores unknown files."""
    filled = fill()
    for path in (
        DATA / "notes.txt",
        DATA / names.LOCK_FILE,
        PARTITION / "dump.txt",
        segment_file(30, ".log.swap"),
        segment_file(95, ".snapshot"),
    ):
        filled.world.fs.open(path, create=True).close()
    found = check(filled)
    assert {one.severity for one in found} == {Severity.NOTE}
    assert len(found) == 5
