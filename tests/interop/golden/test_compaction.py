"""What the cleaner makes of a broker's logs: what the broker's own cleaner made of them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from engine.checkpoint.kafka_files import OffsetCheckpoint
from engine.cleaner.cleaner import LogCleaner
from engine.config import CleanerConfig
from engine.fs.names import CLEAN_SHUTDOWN_FILE, CLEANER_CHECKPOINT
from engine.fs.posix import PosixFileSystem
from engine.types import TopicPartition
from tests.support.builders import World
from tests.support.golden import golden_archive
from tests.support.time import ManualClock

DAY_MS = 86_400_000
CLEANED_AT_MS = {
    "compact-none": 1_795_305_870_403 - DAY_MS,  # no tombstone in it shows a horizon
    "compact-lz4": 1_795_305_870_403 - DAY_MS,
    "compact-txn": 1_795_305_870_674 - DAY_MS,
}
OVERRIDES: dict[str, str | int | float] = {
    "cleanup.policy": "compact",
    "segment.bytes": 1_048_576,
    "segment.index.bytes": 131_072,
    "min.cleanable.dirty.ratio": 0.01,
    "retention.ms": -1,
}
FILES_OF_SEGMENTS = {".log", ".index", ".timeindex", ".txnindex"}


def files_of_segments(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if path.suffix in FILES_OF_SEGMENTS
    }


def compacted_copy(directory: Path, topic: str) -> World:
    """Serve a copy of one partition of `clean`, let the cleaner make one pass, and stop."""
    for name in (f"{topic}-0", CLEAN_SHUTDOWN_FILE):
        source = golden_archive("clean") / name
        if source.is_dir():
            shutil.copytree(source, directory / name)
    (directory / CLEAN_SHUTDOWN_FILE).write_bytes(b'{"version":0,"brokerEpoch":1}')
    world = World(
        fs=PosixFileSystem(), directory=directory, clock=ManualClock(CLEANED_AT_MS[topic])
    )
    manager = world.open_manager()
    manager.update_topic(topic, OVERRIDES)
    cleaner = LogCleaner(
        manager,
        clock=world.clock,
        config=replace(CleanerConfig(), enable=False),
        recorder=world.recorder,
    )
    cleaner.start()
    report = cleaner.run_pass()
    assert report is not None
    assert cleaner.run_pass() is None, "a clean log is cleaned again"
    cleaner.stop()
    manager.close()
    return world


@pytest.mark.parametrize("topic", CLEANED_AT_MS)
def test_compaction_writes_the_brokers_files(topic: str, tmp_path: Path) -> None:
    """Logs and indexes are the broker's byte for byte, and so is the point the log is clean to."""
    world = compacted_copy(tmp_path, topic)
    archive = golden_archive("compacted")
    found = files_of_segments(tmp_path / f"{topic}-0")
    expected = files_of_segments(archive / f"{topic}-0")
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []
    log = TopicPartition(topic, 0)
    ours = OffsetCheckpoint(world.fs, tmp_path / CLEANER_CHECKPOINT).read()
    assert ours == {log: OffsetCheckpoint(world.fs, archive / CLEANER_CHECKPOINT).read()[log]}
