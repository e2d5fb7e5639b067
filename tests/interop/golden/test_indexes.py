"""The index files of a real broker: read as Kafka's own tool reads them, written byte for byte."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.fs.names import base_offset_of
from engine.fs.posix import PosixFileSystem
from engine.index.offset import OffsetIndex
from engine.index.time import TimeIndex
from engine.index.transaction import TransactionIndex
from engine.types import AbortedTransaction
from tests.support.golden import golden_archive, golden_partitions

FS = PosixFileSystem()
CLEAN = ("clean", "compacted")
NUMBERS = re.compile(r"-?\d+")


def dumped(partition: Path, name: str) -> list[tuple[int, ...]]:
    """The numbers of each line that Kafka's dump tool printed of one file."""
    lines = (partition / "dump.txt").read_text(errors="replace").splitlines()
    start = next(n for n, line in enumerate(lines) if line.endswith(f"/{name}")) + 1
    entries = []
    for line in lines[start:]:
        if line.startswith("Dumping ") or line.endswith("is empty."):
            break
        entries.append(tuple(map(int, NUMBERS.findall(line))))
    return entries


def index_files(suffix: str, *archives: str) -> Iterator[tuple[Path, int, list[tuple[int, ...]]]]:
    """Every index file of this kind, its base offset, and what Kafka says is in it."""
    for archive in archives:
        for partition in golden_partitions(archive):
            for path in sorted(partition.glob(f"*{suffix}")):
                base_offset = base_offset_of(path.name)
                assert base_offset is not None
                yield path, base_offset, dumped(partition, path.name)


@pytest.mark.parametrize(("kind", "suffix"), [(OffsetIndex, ".index"), (TimeIndex, ".timeindex")])
def test_entries_are_those_kafka_prints(kind: type[OffsetIndex | TimeIndex], suffix: str) -> None:
    """Every index that a clean stop left holds exactly the entries of Kafka's dump, and is sane."""
    seen = 0
    for path, base_offset, expected in index_files(suffix, *CLEAN):
        index = kind(FS, path, base_offset, 0, read_only=True)
        assert list(index.entries()) == expected, path
        index.sanity_check()
        index.close()
        seen += index.count
    assert seen > 400


@pytest.mark.parametrize(("kind", "suffix"), [(OffsetIndex, ".index"), (TimeIndex, ".timeindex")])
def test_index_of_a_killed_broker_starts_with_its_entries(
    kind: type[OffsetIndex | TimeIndex], suffix: str
) -> None:
    """Where the broker was killed the entries come first and the rest of the file is zeros."""
    padded = 0
    for path, base_offset, expected in index_files(suffix, "killed"):
        index = kind(FS, path, base_offset, 0, read_only=True)
        entries = list(index.entries())
        # Of an index that is all zeros Kafka's tool prints one entry.
        assert entries[: len(expected)] == expected, path
        zeros = (base_offset, 0) if kind is OffsetIndex else (0, base_offset)
        assert set(entries[len(expected) :]) <= {zeros}
        padded += len(entries) > len(expected)
    assert padded == 4


def test_written_offset_index_is_the_broker_s(tmp_path: Path) -> None:
    """The entries appended here and closed give the broker's file, byte for byte."""
    for number, (path, base_offset, expected) in enumerate(index_files(".index", *CLEAN)):
        index = OffsetIndex(FS, tmp_path / str(number), base_offset, 131_072)
        for offset, position in expected:
            index.append(offset, position)
        index.close()
        assert index.path.read_bytes() == path.read_bytes(), path


def test_written_time_index_is_the_broker_s(tmp_path: Path) -> None:
    """The entries appended here and closed give the broker's file, byte for byte."""
    for number, (path, base_offset, expected) in enumerate(index_files(".timeindex", *CLEAN)):
        index = TimeIndex(FS, tmp_path / str(number), base_offset, 131_064)
        for timestamp, offset in expected:
            index.maybe_append(timestamp, offset, skip_full=True)
        index.close()
        assert index.path.read_bytes() == path.read_bytes(), path


def test_transaction_index_is_the_broker_s(tmp_path: Path) -> None:
    """Aborted transactions are read as Kafka prints them, and written byte for byte."""
    seen = 0
    for number, (path, base_offset, expected) in enumerate(
        index_files(".txnindex", *CLEAN, "killed")
    ):
        aborted = [AbortedTransaction(*numbers) for _, *numbers in expected]
        found = TransactionIndex(FS, path, base_offset, read_only=True)
        found.sanity_check()
        assert list(found.entries()) == aborted, path
        written = TransactionIndex(FS, tmp_path / str(number), base_offset)
        for entry in aborted:
            written.append(entry)
        assert written.path.read_bytes() == path.read_bytes()
        seen += len(aborted)
    assert seen > 10


def test_rebuilt_indexes_say_what_the_first_ones_said() -> None:
    """What the broker rebuilt from the log alone reads like what it wrote while appending."""
    compared = 0
    for partition in golden_partitions("rebuilt"):
        if partition.name == "epochs-0":  # appends before each restart left fewer entries
            continue
        for path in partition.glob("*.index"):
            base_offset = base_offset_of(path.name)
            assert base_offset is not None
            rebuilt = OffsetIndex(FS, path, base_offset, 0, read_only=True)
            assert list(rebuilt.entries()) == dumped(
                golden_archive("clean") / partition.name, path.name
            )
            compared += 1
    assert compared > 15
