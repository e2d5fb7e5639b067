"""A sync of a whole file system: where it can be trusted, and that it happens."""

import ctypes
import errno
import os
import sys
from pathlib import Path

import pytest

from engine.fs import posix
from engine.fs.posix import PosixFileSystemHandle, reports_failed_writes, type_of
from engine.runtime import Runtime
from engine.types import TopicPartition
from tests.support.builders import new_batch
from tests.support.disk_calls import disk_calls

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684092k
"""


def test_the_type_of_a_file_system_is_that_of_its_device() -> None:
    """It is found in the list of mounts by the numbers of the device."""
    assert [type_of(MOUNTS, *device) for device in [(254, 0), (0, 23), (0, 24)]] == [
        "ext4",
        "tmpfs",
        None,
    ]


@pytest.mark.parametrize(
    ("release", "type_", "expected"),
    [
        ("6.1.0-13-amd64", "ext4", True),
        ("5.8", "xfs", True),
        ("5.7.19", "ext4", False),  # reports success although a write failed
        ("6.1.0", "nfs4", False),
        ("unknown", "ext4", False),
    ],
)
def test_only_a_kernel_that_reports_failed_writes_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, type_: str, *, expected: bool
) -> None:
    """Elsewhere a sync would report success although a write failed."""
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    numbers = f"{os.major(device)}:{os.minor(device)}"
    mounts.write_text(f"27 1 {numbers} / / rw - {type_} /dev/vda rw\n")
    uname = os.uname_result(("Linux", "host", release, "", "x86_64"))
    monkeypatch.setattr(posix, "_MOUNTS", mounts)
    monkeypatch.setattr(os, "uname", lambda: uname)
    monkeypatch.setattr(sys, "platform", "linux")
    assert reports_failed_writes(tmp_path) is expected
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not reports_failed_writes(tmp_path)


class Library:
    """The C library, of which one function is used."""

    def __init__(self, error: int = 0) -> None:
        self.calls = 0
        self._error = error

    def syncfs(self, number: int) -> int:
        os.fstat(number)  # an open file
        self.calls += 1
        ctypes.set_errno(self._error)
        return -1 if self._error else 0


def test_an_error_of_the_system_call_is_raised_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed handle is a ValueError, as with files."""
    with PosixFileSystemHandle(tmp_path) as handle:
        handle.sync_all()
        monkeypatch.setattr(posix, "_LIBRARY", Library(errno.EIO))
        with pytest.raises(OSError, match="Input/output error") as caught:
            handle.sync_all()
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(tmp_path))
    with pytest.raises(ValueError, match="closed"):
        handle.sync_all()
    handle.close()


def test_a_round_of_many_logs_makes_one_system_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first round syncs each of them, for comparison."""
    library = Library()
    monkeypatch.setattr(posix, "_LIBRARY", library)
    monkeypatch.setattr(posix, "reports_failed_writes", lambda _: True)
    runtime = Runtime(tmp_path)
    runtime.manager.open()
    runtime.manager.create_topic("events", 16, {})
    logs = [runtime.manager.log(TopicPartition("events", number)) for number in range(16)]
    counts = []
    for _ in range(2):
        for log in logs:
            runtime.committer.append(log, new_batch(), acks_all=True)
        with disk_calls() as calls:
            assert runtime.committer.run_round()
        counts.append((len(calls.below(tmp_path)), library.calls))
    runtime.close()
    assert counts == [(16, 0), (0, 1)]
    assert [log.watermarks.high_watermark for log in logs] == [2] * 16
