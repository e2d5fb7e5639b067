"""What we write where a real broker wrote: the same files, byte for byte."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import LogConfig
from engine.fs.names import parse_partition_directory
from engine.fs.posix import PosixFileSystem
from engine.log.log import Log
from engine.records.batch import BatchView
from engine.records.scan import iter_headers
from engine.types import AppendOrigin
from tests.support.builders import World
from tests.support.golden import golden_archive, golden_config, golden_partitions

CLEAN = [directory.name for directory in golden_partitions("clean")]
REBUILT = [directory.name for directory in golden_partitions("rebuilt")]
DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")
NOT_OF_THE_LOG = {"dump.txt", "expected.json"}


def files_of(directory: Path, *suffixes: str) -> dict[str, bytes]:
    """The files of a partition by name, or only those of some kinds."""
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if path.name not in NOT_OF_THE_LOG and (not suffixes or path.suffix in suffixes)
    }


def open_in(tmp_path: Path, partition: str, *, was_clean: bool) -> Log:
    world = World(fs=PosixFileSystem(), directory=tmp_path)
    log_start = 2345 if partition == "trimmed-0" else 0
    return world.open_log(
        golden_config(partition),
        log=parse_partition_directory(partition).topic_partition,
        log_start_offset=log_start,
        recovery_point=log_start,
        was_clean=was_clean,
    )


def copied(tmp_path: Path, archive: str, partition: str) -> Path:
    target = tmp_path / partition
    shutil.copytree(
        golden_archive(archive) / partition, target, ignore=shutil.ignore_patterns(*NOT_OF_THE_LOG)
    )
    return target


def batches_of(partition: Path) -> Iterator[bytes]:
    for path in sorted(partition.glob("*.log")):
        content = path.read_bytes()
        for position, _ in iter_headers(content):
            yield bytes(BatchView(content, position).buffer)


@pytest.mark.parametrize("partition", CLEAN)
def test_a_clean_log_opened_and_closed_stays_as_it_was(partition: str, tmp_path: Path) -> None:
    """No byte of any file changes; only the stray snapshot of `epochs` goes, as in Kafka."""
    directory = copied(tmp_path, "clean", partition)
    expected = files_of(directory)
    open_in(tmp_path, partition, was_clean=True).close()
    if partition == "epochs-0":
        del expected["00000000000000000040.snapshot"]
    assert files_of(directory) == expected


@pytest.mark.parametrize("partition", ["segments-0", "txn-0", "codec-lz4-0"])
def test_a_killed_log_recovered_and_closed_is_the_brokers(partition: str, tmp_path: Path) -> None:
    """Recovery after `kill -9` and a clean stop leave the very files that the broker left."""
    directory = copied(tmp_path, "killed", partition)
    open_in(tmp_path, partition, was_clean=False).close()
    expected = files_of(golden_archive("clean") / partition)
    del expected["leader-epoch-checkpoint"]
    found = files_of(directory)
    found.pop("tidelog-producer-windows", None)  # ours: Kafka ignores it
    assert found.pop("leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert found == expected


@pytest.mark.parametrize("was_clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("partition", REBUILT)
def test_derived_files_are_rebuilt_as_the_broker_does(
    partition: str, *, was_clean: bool, tmp_path: Path
) -> None:
    """Without indexes and snapshots, opening and closing writes the files of Kafka's rebuild."""
    directory = copied(tmp_path, "clean", partition)
    for path in directory.iterdir():
        if path.suffix in DERIVED:
            path.unlink()
    open_in(tmp_path, partition, was_clean=was_clean).close()
    expected = files_of(golden_archive("rebuilt") / partition, *DERIVED)
    assert files_of(directory, *DERIVED) == expected


def followed(partition: str, tmp_path: Path, config: LogConfig) -> Path:
    """Append the batches one by one, as a follower does; return the directory, closed."""
    world = World(fs=PosixFileSystem(), directory=tmp_path)
    log = world.open_log(config, log=parse_partition_directory(partition).topic_partition)
    for batch in batches_of(golden_archive("clean") / partition):
        log.append(batch, origin=AppendOrigin.REPLICATION)
    log.close()
    return log.directory


@pytest.mark.parametrize("partition", [name for name in CLEAN if name != "epochs-0"])
def test_following_the_broker_writes_its_files(partition: str, tmp_path: Path) -> None:
    """Batch by batch, `.log`, indexes and snapshots become those that the broker wrote."""
    directory = followed(partition, tmp_path, golden_config(partition))
    expected = files_of(golden_archive("clean") / partition, ".log", *DERIVED)
    found = files_of(directory, ".log", *DERIVED)
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []


def test_smaller_segments_hold_the_same_bytes(tmp_path: Path) -> None:
    """The broker's batches under another segment size make other files and the same log."""
    partition = "codec-none-0"
    source = b"".join(batches_of(golden_archive("clean") / partition))
    config = replace(golden_config(partition), segment_bytes=len(source) // 5)
    stored = sorted(followed(partition, tmp_path, config).glob("*.log"))
    assert len(stored) > 5
    assert b"".join(path.read_bytes() for path in stored) == source
