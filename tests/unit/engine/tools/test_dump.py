"""The dump: line for line what Kafka's own tool prints, and its reports of damaged files."""

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from engine.cleaner.rewrite import empty_batch
from engine.fs import names
from engine.fs.posix import PosixFileSystem
from engine.records.batch import BatchView, stamp_crc
from engine.records.builder import encode_batch
from engine.records.compression import compress
from engine.records.header import (
    ATTRIBUTES_POSITION,
    CONTROL_MASK,
    CRC_POSITION,
    Codec,
    parse_header,
)
from engine.records.record import Record
from engine.state.producer_entry import BatchMetadata, ProducerEntry
from engine.state.producer_snapshots import encode_snapshot
from engine.tools.dump import Entry, dump_file, render
from tests.support.builders import World, new_batch
from tests.support.golden import golden_archive, golden_partitions
from tests.support.kafka import kafka
from tests.support.legacy import legacy_message, legacy_wrapper
from tests.support.time import START_MS

FS = PosixFileSystem()
LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"
DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def dumped(path: Path, *, deep: bool = True) -> list[Entry]:
    return list(dump_file(FS, path, deep=deep))


def lines(entries: Iterable[Entry]) -> list[str]:
    """What goes to the output."""
    return [render(entry) for entry in entries if entry.kind not in {"gap", "problem"}]


def problems(entries: Iterable[Entry]) -> list[str]:
    """What makes the exit code 1."""
    return [render(entry) for entry in entries if entry.kind == "problem"]


def write_log(directory: Path, *parts: bytes | bytearray) -> Path:
    path = directory / LOG
    path.write_bytes(b"".join(parts))
    return path


def at(offset: int, batch: bytearray) -> bytearray:
    batch[:8] = offset.to_bytes(8, "big")
    return batch


# -- files of a broker ----------------------------------------------------------------------------


@kafka(
    "DumpLogSegmentsTest.testBatchAndRecordMetadataOutput",
    "DumpLogSegmentsTest.testPrintDataLog",
)
@pytest.mark.parametrize(
    ("archive", "partition"),
    [
        (archive, folder.name)
        for archive in ("clean", "compacted", "killed")
        for folder in golden_partitions(archive)
    ],
)
def test_a_brokers_files_are_dumped_line_for_line(
    archive: str, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file of every partition gives the lines that kafka-dump-log printed for it."""
    monkeypatch.chdir(golden_archive(archive).parent)
    folder = Path(archive) / partition
    found = [
        line
        for path in sorted(folder.iterdir())
        if path.suffix in DUMPED
        for line in lines(dump_file(FS, path))
    ]
    assert found == (folder / "dump.txt").read_text().splitlines()


@kafka("DumpLogSegmentsTest.testDumpIndexMismatches", "DumpLogSegmentsTest.testDumpTimeIndexErrors")
def test_a_healthy_directory_has_no_problems() -> None:
    """Indexes agree with their log, and offsets are consecutive, in all that a broker closed."""
    found = [
        render(entry)
        for folder in golden_partitions("clean")
        for path in folder.iterdir()
        if path.suffix in DUMPED
        for entry in dump_file(FS, path)
        if entry.kind in {"gap", "problem"}
    ]
    assert found == []


@kafka("DumpLogSegmentsTest.testPrintDataLogPartialBatches")
def test_a_limit_of_bytes_ends_a_dump_at_a_whole_batch() -> None:
    """The batches that end within it, and no entry for the bytes after it."""
    path = golden_archive("clean") / "codec-none-0" / LOG
    whole = [entry for entry in dumped(path, deep=False) if entry.kind == "batch"]
    ends = [int(str(one.fields["position"])) + int(str(one.fields["size"])) for one in whole]
    assert len(ends) > 2
    for limit, count in ((0, 0), (ends[0] - 1, 0), (ends[0], 1), (ends[2] - 1, 2), (10**9, None)):
        limited = list(dump_file(FS, path, deep=False, max_bytes=limit))
        assert [entry.kind for entry in limited[:2]] == ["file", "log_start"]
        assert limited[2:] == whole[:count]


@kafka("DumpLogSegmentsTest.testPrintDataLog")
def test_without_deep_iteration_there_are_no_records() -> None:
    """A shallow dump lists the batches only."""
    path = golden_archive("clean") / "codec-none-0" / LOG
    kinds = {entry.kind for entry in dumped(path, deep=False)}
    assert kinds == {"file", "log_start", "batch"}


def test_what_we_write_is_dumped_without_problems(tmp_path: Path) -> None:
    """Log, indexes and snapshot of our own pass the comparison too."""
    world = World(fs=FS, directory=tmp_path)
    log = world.open_log()
    for number in range(50):
        log.append(
            new_batch(
                4, value=b"v" * 500, producer_id=1, producer_epoch=0, base_sequence=number * 4
            )
        )
    log.durability.flush()
    log.close()
    paths = [path for path in log.directory.iterdir() if path.suffix in DUMPED]
    assert {path.suffix for path in paths} == {".log", ".index", ".timeindex", ".snapshot"}
    for path in paths:
        entries = dumped(path)
        assert problems(entries) == []
        assert len(entries) > 1


# -- faults ---------------------------------------------------------------------------------------


def test_an_unknown_file_is_a_problem_and_no_more(tmp_path: Path) -> None:
    """Files of other kinds are named on the error stream; nothing is read of them."""
    for name in ("dump.txt", "notes.log", "00000000000000000000.jpg"):
        entries = dumped(tmp_path / name)
        assert [entry.kind for entry in entries] == ["problem"]
        assert render(entries[0]) == f"Ignoring unknown file {tmp_path / name}"


def test_a_torn_tail_is_counted(tmp_path: Path) -> None:
    """The bytes of an incomplete batch are named, after all complete ones."""
    batch = new_batch()
    path = write_log(tmp_path, batch, batch[:70])
    entries = dumped(path)
    assert lines(entries)[-1] == f"Found 70 invalid bytes at the end of {LOG}"
    assert [entry.kind for entry in entries].count("batch") == 1


def test_a_tail_of_zeros_is_a_problem_with_its_position(tmp_path: Path) -> None:
    """Where no batch can start, the dump reports the position and ends."""
    batch = new_batch()
    path = write_log(tmp_path, batch, bytes(100))
    entries = dumped(path)
    assert lines(entries)[-1] == f"Found 100 invalid bytes at the end of {LOG}"
    assert entries[-2].fields["position"] == len(batch)


def test_a_wrong_checksum_is_shown_and_passed(tmp_path: Path) -> None:
    """A batch with a wrong checksum is marked, and the next one is still dumped."""
    bad = new_batch()
    bad[CRC_POSITION] ^= 1
    entries = dumped(write_log(tmp_path, bad, at(1, new_batch())))
    shown = [entry.fields["isvalid"] for entry in entries if entry.kind == "batch"]
    assert shown == [False, True]
    assert "isvalid: false" in lines(entries)[2]


def test_records_that_cannot_be_read_are_a_problem(tmp_path: Path) -> None:
    """A batch whose content is nonsense is listed; its records are a problem with a position."""
    bad = new_batch(value=b"v" * 30)
    bad[70:] = b"\xff" * (len(bad) - 70)
    stamp_crc(bad, 0, len(bad))
    entries = dumped(write_log(tmp_path, bad, at(1, new_batch())))
    assert [entry.kind for entry in entries].count("batch") == 2
    assert problems(entries)[0].startswith(f"{tmp_path / LOG}: byte 0:")


def test_an_unknown_codec_is_named(tmp_path: Path) -> None:
    """Codec bits without a meaning do not end the dump."""
    bad = new_batch()
    struct.pack_into(">h", bad, ATTRIBUTES_POSITION, 7)
    stamp_crc(bad, 0, len(bad))
    entries = dumped(write_log(tmp_path, bad))
    assert "compresscodec: codec bits 7 have no meaning" in lines(entries)[2]


def test_messages_of_old_formats_are_dumped_with_the_fields_they_have(tmp_path: Path) -> None:
    """Magic 0 and 1 have neither epochs, sequences nor headers, and magic 0 no times."""
    plain = legacy_message(0, b"k", b"value", magic=0)
    wrapper = legacy_wrapper(1, [b"", b"12"], timestamp=5)
    entries = dumped(write_log(tmp_path, plain, wrapper, at(3, new_batch())))
    assert problems(entries) == []
    crcs = [int.from_bytes(message[12:16], "big") for message in (plain, wrapper)]
    inner = [
        zlib.crc32(legacy_message(offset, b"key", value, timestamp=5 + offset)[16:])
        for offset, value in enumerate((b"", b"12"))
    ]
    assert lines(entries)[2:7] == [
        (
            f"offset: 0 position: 0 NoTimestampType: -1 size: {len(plain)} magic: 0 "
            f"compresscodec: none crc: {crcs[0]} isvalid: true"
        ),
        f"| offset: 0 NoTimestampType: -1 keySize: 1 valueSize: 5 isValid: true crc: {crcs[0]}",
        (
            f"offset: 2 position: {len(plain)} CreateTime: 6 size: {len(wrapper)} magic: 1 "
            f"compresscodec: gzip crc: {crcs[1]} isvalid: true"
        ),
        f"| offset: 1 CreateTime: 5 keySize: 3 valueSize: 0 isValid: true crc: {inner[0]}",
        f"| offset: 2 CreateTime: 6 keySize: 3 valueSize: 2 isValid: true crc: {inner[1]}",
    ]


def test_a_message_inside_a_wrapper_has_a_checksum_of_its_own(tmp_path: Path) -> None:
    """The wrapper is intact, and one of its messages is not."""
    good, bad = legacy_message(0), bytearray(legacy_message(1))
    bad[-1] ^= 1
    content = compress(Codec.GZIP, good + bytes(bad))
    wrapper = legacy_message(1, None, content, attributes=Codec.GZIP)
    batch, *records = dumped(write_log(tmp_path, wrapper))[2:]
    assert batch.fields["isvalid"] is True
    assert [record.fields["isValid"] for record in records] == [True, False]


def test_gaps_between_offsets_are_listed_at_the_end(tmp_path: Path) -> None:
    """Offsets that compaction took are named as Kafka's tool names them."""
    entries = dumped(write_log(tmp_path, new_batch(2), at(5, new_batch())))
    assert problems(entries) == []
    assert [render(one) for one in entries if one.kind == "gap"] == [
        f"{tmp_path / LOG}: 1 is followed by 5"
    ]
    assert entries[-1].kind == "gap"


def test_control_records_that_end_no_transaction_are_named(tmp_path: Path) -> None:
    """A control record of another type is shown by its type, without a marker's fields."""
    plain = parse_header(new_batch())
    header = plain._replace(attributes=CONTROL_MASK)
    batch = encode_batch(header, [Record(0, START_MS, struct.pack(">hh", 0, 2), b"", ())])
    entries = dumped(write_log(tmp_path, batch))
    assert lines(entries)[-1].endswith("headerKeys: [] controlType: LEADER_CHANGE(2)")


def test_an_offset_index_that_disagrees_is_reported(tmp_path: Path) -> None:
    """An entry must point at the batch that ends with its offset; all others are named."""
    first = new_batch(2)
    write_log(tmp_path, first, at(2, new_batch(2)))
    entries = [(1, 0), (3, len(first)), (5, 0), (6, 7), (7, 10_000)]
    (tmp_path / INDEX).write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    found = dumped(tmp_path / INDEX)
    assert lines(found)[1:3] == ["offset: 1 position: 0", f"offset: 3 position: {len(first)}"]
    assert len(lines(found)) == 6
    assert problems(found) == [
        f"{tmp_path / INDEX}: Index offset: 5, log offset: 1",
        f"{tmp_path / INDEX}: Index offset: 6, log offset: -1",
        f"{tmp_path / INDEX}: Index offset: 7, log offset: -1",
    ]


def test_the_zeros_of_an_index_that_was_never_trimmed_end_its_dump(tmp_path: Path) -> None:
    """After a kill the rest of an index file is zeros, which are not entries."""
    write_log(tmp_path, new_batch(2))
    (tmp_path / INDEX).write_bytes(struct.pack(">ii", 1, 0) + bytes(80))
    (tmp_path / TIME_INDEX).write_bytes(struct.pack(">qi", START_MS, 1) + bytes(120))
    assert lines(dumped(tmp_path / INDEX))[1:] == ["offset: 1 position: 0"]
    found = dumped(tmp_path / TIME_INDEX)
    assert lines(found)[1:] == [f"timestamp: {START_MS} offset: 1"]
    assert problems(found) == []


def test_a_time_index_that_disagrees_is_reported(tmp_path: Path) -> None:
    """Wrong times, unknown offsets and times that do not ascend are three kinds of problem."""
    write_log(tmp_path, new_batch(2), at(2, new_batch(2, timestamp=START_MS + 5)))
    (tmp_path / INDEX).write_bytes(b"")
    entries = [(START_MS + 1, 1), (START_MS + 5, 3), (START_MS + 5, 9)]
    (tmp_path / TIME_INDEX).write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))
    path = tmp_path / TIME_INDEX
    assert problems(dumped(path)) == [
        f"{path}: Indexed timestamp: {START_MS + 1}, log timestamp: {START_MS}",
        f"{path}: Index offset: 9, log offset: -1",
        f"{path}: Index timestamp: {START_MS + 5}, then: {START_MS + 5}",
    ]


def test_a_time_index_over_records_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    """If the log is damaged the index cannot be verified, and the dump says so."""
    bad = new_batch(value=b"v" * 30)
    bad[70:] = b"\xff" * (len(bad) - 70)
    stamp_crc(bad, 0, len(bad))
    write_log(tmp_path, bad)
    (tmp_path / INDEX).write_bytes(b"")
    (tmp_path / TIME_INDEX).write_bytes(struct.pack(">qi", START_MS, 0))
    assert "log timestamp: -1" in problems(dumped(tmp_path / TIME_INDEX))[0]


def test_a_time_index_may_name_a_batch_that_compaction_emptied(tmp_path: Path) -> None:
    """Its header is left, which keeps its largest time."""
    emptied = empty_batch(BatchView(new_batch(2)).header)
    write_log(tmp_path, emptied)
    (tmp_path / INDEX).write_bytes(b"")
    for timestamp, is_right in ((START_MS, True), (START_MS + 1, False)):
        (tmp_path / TIME_INDEX).write_bytes(struct.pack(">qi", timestamp, 1))
        assert (problems(dumped(tmp_path / TIME_INDEX)) == []) is is_right


def test_a_damaged_snapshot_is_a_problem(tmp_path: Path) -> None:
    """A snapshot with a wrong checksum has no producers to print, and a problem entry."""
    path = tmp_path / names.snapshot_name(5)
    content = bytearray(encode_snapshot([ProducerEntry(7)]))
    content[-1] ^= 1
    path.write_bytes(content)
    found = dumped(path)
    assert [entry.kind for entry in found] == ["file", "problem"]
    assert "crc" in render(found[1])


def test_a_producer_without_a_batch_has_fewer_names(tmp_path: Path) -> None:
    """Only a producer with a known newest batch has one in the dump."""
    path = tmp_path / names.snapshot_name(5)
    with_batch = ProducerEntry(8, 0, -1, 50, None, (BatchMetadata(4, 10, 2, 50),))
    path.write_bytes(encode_snapshot([ProducerEntry(7, 1, transaction_first_offset=3), with_batch]))
    assert lines(dumped(path))[1:] == [
        (
            "producerId: 7 producerEpoch: 1 coordinatorEpoch: -1 "
            "currentTxnFirstOffset: OptionalLong[3] lastTimestamp: -1"
        ),
        (
            "producerId: 8 producerEpoch: 0 coordinatorEpoch: -1 "
            "currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 50 "
            "firstSequence: 2 lastSequence: 4 lastOffset: 10 offsetDelta: 2 timestamp: 50"
        ),
    ]


def test_a_transaction_index_of_another_version_is_a_problem(tmp_path: Path) -> None:
    """An entry of an unknown version is not decoded."""
    path = tmp_path / names.txn_index_name(0)
    path.write_bytes(struct.pack(">hqqqq", 1, 7, 0, 5, 0))
    found = dumped(path)
    assert [entry.kind for entry in found] == ["file", "problem"]


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    """A path that cannot be opened is the caller's to report."""
    with pytest.raises(FileNotFoundError):
        dumped(tmp_path / LOG)


def test_programs_get_names_and_values(tmp_path: Path) -> None:
    """An entry's fields carry plain values under the names that the lines show."""
    entries = dumped(write_log(tmp_path, new_batch()))
    batch = next(entry for entry in entries if entry.kind == "batch")
    assert batch.fields["deleteHorizonMs"] is None
    assert batch.fields["isTransactional"] is False
    assert batch.fields["CreateTime"] == START_MS
    record = next(entry for entry in entries if entry.kind == "record")
    assert record.fields["headerKeys"] == ()
