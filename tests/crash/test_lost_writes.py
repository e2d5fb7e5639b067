"""A disk that loses writes below a real file system, while one sync serves many logs. As root."""

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from engine.errors import StorageError, StorageOffline
from engine.log.log import Log
from engine.runtime import Runtime
from engine.types import TopicPartition
from tests.support.builders import new_batch

LOGS = 8
VALUE_BYTES = 64 << 10
DISK = "size=48m"
"""The image below the file system is larger than its disk, so that a write fails at some time."""


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class Journal:
    """The committer's listener: acknowledged ends, and failures."""

    def __init__(self) -> None:
        self.acknowledged: dict[TopicPartition, int] = {}
        self.failures: list[StorageError] = []

    def committed(self, logs: Sequence[tuple[Log, int]]) -> None:
        self.acknowledged |= {log.topic_partition: end for log, end in logs}

    def failed(self, _: Sequence[Log], error: StorageError) -> None:
        self.failures.append(error)


@pytest.mark.long
@pytest.mark.needs("mount", "mkfs.ext4")
def test_a_write_that_the_disk_loses_is_reported_to_the_one_sync(tmp_path: Path) -> None:
    """The page cache accepted every append; only the sync of the file system reports the loss."""
    small, disk, journal = tmp_path / "small", tmp_path / "disk", Journal()
    image = small / "image"
    small.mkdir()
    disk.mkdir()
    with ExitStack() as mounts:
        run("mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(small))
        mounts.callback(run, "umount", "-l", str(small))
        with image.open("wb") as file:
            file.truncate(300 << 20)
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,nodiscard", str(image))
        run("mount", "-o", "loop", str(image), str(disk))
        with ExitStack() as mounted:
            mounted.callback(run, "umount", "-l", str(disk))
            append_until_it_fails(disk / "data", journal)
        assert journal.acknowledged
        assert {type(error) for error in journal.failures} == {StorageOffline}
        run("mount", "-o", "remount,size=400m", str(small))
        subprocess.run(["fsck.ext4", "-p", str(image)], check=False, capture_output=True)
        run("mount", "-o", "loop", str(image), str(disk))
        mounts.callback(run, "umount", str(disk))
        runtime = Runtime(disk / "data")
        runtime.open()
        for topic_partition, end in journal.acknowledged.items():
            assert runtime.manager.log(topic_partition).watermarks.high_watermark >= end
        runtime.close()


def append_until_it_fails(directory: Path, journal: Journal) -> None:
    runtime = Runtime(directory, on_commit=journal.committed, on_failure=journal.failed)
    runtime.manager.open()
    runtime.manager.create_topic("events", LOGS, {})
    logs = [runtime.manager.log(TopicPartition("events", number)) for number in range(LOGS)]
    assert logs[0].durability.health.file_system is not None
    random = Random(1)
    while not journal.failures:
        for log in logs:
            batch = new_batch(value=random.randbytes(VALUE_BYTES))
            runtime.committer.append(log, batch, acks_all=True)
        runtime.committer.run_round()
    with pytest.raises(StorageOffline):
        runtime.committer.append(logs[0], new_batch(), acks_all=True)
    runtime.close()
