"""Snapshots and transaction indexes that a real broker wrote, and ours from the same batches."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.fs.posix import PosixFileSystem
from engine.index.transaction import TransactionIndex
from engine.records.batch import BatchView
from engine.records.control import EndMarker, parse_end_marker
from engine.records.header import BatchHeader
from engine.records.scan import iter_headers
from engine.state.epochs import LeaderEpochCache
from engine.state.producer_snapshots import decode_snapshot, encode_snapshot
from engine.state.producers import ProducerStates
from engine.topic_keys import DAY_MS
from engine.types import AbortedTransaction
from tests.support.golden import golden_partitions
from tests.support.producers import first_undecided
from tests.support.time import ManualClock


def batches_of(partition: Path) -> Iterator[tuple[BatchHeader, EndMarker | None]]:
    """Every batch of a log, with the content of markers."""
    for path in sorted(partition.glob("*.log")):
        buffer = path.read_bytes()
        for position, header in iter_headers(buffer):
            is_marker = header.is_control
            yield header, parse_end_marker(BatchView(buffer, position)) if is_marker else None


def snapshots_of(partition: Path) -> dict[int, bytes]:
    return {int(path.stem): path.read_bytes() for path in partition.glob("*.snapshot")}


@pytest.mark.parametrize("archive", ["clean", "killed", "compacted", "rebuilt"])
def test_writing_what_was_read_gives_the_brokers_bytes(archive: str) -> None:
    """Every snapshot of the archive, decoded and encoded, is the same file."""
    contents = [
        content
        for partition in golden_partitions(archive)
        for content in snapshots_of(partition).values()
    ]
    assert contents
    for content in contents:
        assert encode_snapshot(decode_snapshot(content, loaded_ms=0)) == content


def test_feeding_the_batches_gives_the_brokers_snapshots(tmp_path: Path) -> None:
    """At each offset where the broker took a snapshot, ours has its bytes."""
    compared = 0
    for partition in golden_partitions("clean"):
        expected = snapshots_of(partition)
        directory = tmp_path / partition.name
        directory.mkdir()
        states = ProducerStates(
            PosixFileSystem(), directory, clock=ManualClock(), expiration_ms=DAY_MS
        )
        for header, marker in batches_of(partition):
            if header.base_offset in expected:
                states.take_snapshot(sync=False)
            states.observe(header, marker)
        states.take_snapshot(sync=False)
        assert snapshots_of(directory) == expected, partition.name
        compared += len(expected)
    assert compared == 29


def test_feeding_the_batches_gives_the_brokers_aborts(tmp_path: Path) -> None:
    """The entries of the transaction indexes, last stable offsets included."""
    compared = 0
    for partition in golden_partitions("clean"):
        fs = PosixFileSystem()
        expected: list[AbortedTransaction] = []
        for path in sorted(partition.glob("*.txnindex")):
            index = TransactionIndex(fs, path, int(path.stem), read_only=True)
            expected.extend(index.entries())
            index.close()
        directory = tmp_path / partition.name
        directory.mkdir()
        states = ProducerStates(fs, directory, clock=ManualClock(), expiration_ms=DAY_MS)
        observed = [states.observe(*batch) for batch in batches_of(partition)]
        assert [aborted for aborted in observed if aborted] == expected, partition.name
        compared += len(expected)
    assert compared > 10


def test_an_open_transaction_holds_the_last_stable_offset_down(tmp_path: Path) -> None:
    """The partition whose transaction is open is unstable from its first offset on."""
    (partition,) = [each for each in golden_partitions("clean") if each.name == "txn-open-0"]
    states = ProducerStates(PosixFileSystem(), tmp_path, clock=ManualClock(), expiration_ms=DAY_MS)
    for batch in batches_of(partition):
        states.observe(*batch)
    assert first_undecided(states) == 10


def test_the_brokers_epochs_are_read(tmp_path: Path) -> None:
    """Of a partition that saw two restarts, each batch has the epoch that the file says."""
    (partition,) = [each for each in golden_partitions("clean") if each.name == "epochs-0"]
    epochs = LeaderEpochCache(PosixFileSystem(), partition)
    assert len(epochs.entries) > 1
    for header, _ in batches_of(partition):
        begun = [one.epoch for one in epochs.entries if one.start_offset <= header.base_offset]
        assert begun[-1] == header.leader_epoch
