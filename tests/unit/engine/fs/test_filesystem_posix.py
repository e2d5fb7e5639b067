"""The machine's file system with signals, full disks and other processes."""

import errno
import fcntl
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.errors import DirectoryLocked
from engine.fs import posix
from engine.fs.directories import DirectoryLock
from engine.fs.names import LOCK_FILE
from engine.fs.posix import RESERVE_BYTES, PosixFile, PosixFileSystem, PosixLock
from tests.support.disk_calls import disk_calls
from tests.support.open_files import open_files_left


@pytest.fixture
def fs() -> PosixFileSystem:
    return PosixFileSystem()


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """Make the system refuse bytes after a limit as a full disk does.

    A short write, then an error.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def stingy(write: Any) -> Any:
    """Make a system call write at most seven bytes, as one that a signal interrupts."""

    def call(number: int, data: Any, position: int) -> int:
        joined = data if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        written: int = os_pwrite(number, bytes(joined)[:7], position)
        return written

    os_pwrite = os.pwrite if write is os.pwritev else write
    return call


def test_short_writes_are_continued(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little the system takes at a time, an append is whole."""
    monkeypatch.setattr(os, "pwritev", stingy(os.pwritev))
    monkeypatch.setattr(os, "pwrite", stingy(os.pwrite))
    with fs.open(tmp_path / "f", create=True) as file:
        assert file.append(b"0123456789" * 3) == 0
        assert file.append_many([b"abcdefgh", b"ijkl", b"mnopqrstuvwxyz"]) == 30
        assert file.read_at(0, 100) == b"0123456789" * 3 + b"abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize("many", [False, True])
def test_failed_append_leaves_the_file_as_it_was(
    fs: PosixFileSystem, tmp_path: Path, *, many: bool
) -> None:
    """When the disk has room for half an append only, that half is cut off again."""
    data = b"x" * 200
    with fs.open(tmp_path / "f", create=True) as file:
        file.append(b"before")
        with file_size_limit(100), pytest.raises(OSError, match="too large"):
            file.append_many([data, data]) if many else file.append(data)
        assert (file.size_bytes, fs.read_bytes(tmp_path / "f")) == (6, b"before")
        assert file.append(b"after") == 6


@pytest.mark.parametrize("many", [False, True])
def test_an_append_that_fails_and_cannot_be_cut_off_is_a_failed_disk(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, many: bool
) -> None:
    """The error must not be one that passes: the file is not as it was."""

    def lack_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space to cut")

    data = b"x" * 200
    monkeypatch.setattr(os, "ftruncate", lack_space)
    with (
        fs.open(tmp_path / "f", create=True) as file,
        file_size_limit(100),
        pytest.raises(OSError, match="no space to cut") as failed,
    ):
        file.append_many([data, data]) if many else file.append(data)
    assert failed.value.errno == errno.EIO


@pytest.mark.parametrize("many", [False, True])
def test_append_that_wrote_nothing_needs_no_cut(
    fs: PosixFileSystem, tmp_path: Path, *, many: bool
) -> None:
    """An append that fails before its first byte leaves length and time of modification alone."""
    with fs.open(tmp_path / "f", create=True) as file:
        file.append(b"before")
        fs.set_modified_ms(tmp_path / "f", 1_000)
        with file_size_limit(6), pytest.raises(OSError, match="too large"):
            file.append_many([b"x"]) if many else file.append(b"x")
    assert fs.modified_ms(tmp_path / "f") == 1_000


def test_reads_continue_after_a_short_one(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little the system returns at a time, a read is whole."""
    whole_read = os.pread
    monkeypatch.setattr(
        os, "pread", lambda number, length, position: whole_read(number, min(length, 3), position)
    )
    with fs.open(tmp_path / "f", create=True) as file:
        file.append(b"0123456789")
        assert file.read_at(1, 8) == b"12345678"


def test_read_of_a_file_that_was_cut_meanwhile_is_short(
    fs: PosixFileSystem, tmp_path: Path
) -> None:
    """A reader that read the size before a truncation gets the rest, and ends."""
    with fs.open(tmp_path / "f", create=True) as writer:
        writer.append(b"0123456789")
        with fs.open(tmp_path / "f", read_only=True) as reader:
            writer.truncate(4)
            assert reader.read_at(2, 8) == b"23"
            assert reader.read_cached(2, 8) is None


def test_read_that_would_wait_for_the_disk_is_refused(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that are not in memory give None, so that the caller can read on another thread."""

    def would_block(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "not in the page cache")

    with fs.open(tmp_path / "f", create=True) as file:
        file.append(b"abc")
        assert file.read_cached(0, 3) == b"abc"
        monkeypatch.setattr(os, "preadv", would_block, raising=False)
        monkeypatch.setattr("engine.fs.posix._NO_WAIT", 8)
        assert file.read_cached(0, 3) is None


def test_file_system_that_cannot_tell_is_asked_once(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where not waiting is not supported the bytes are read anyway, from then on without asking."""
    asked = []

    def unsupported(*_: object) -> int:
        asked.append(1)
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "preadv", unsupported)
    monkeypatch.setattr("engine.fs.posix._NO_WAIT", 8)
    with fs.open(tmp_path / "f", create=True) as file:
        file.append(b"abc")
        assert [file.read_cached(0, 3), file.read_cached(1, 3)] == [b"abc", b"bc"]
    assert len(asked) == 1


def test_failure_of_a_cached_read_is_reported(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk error is an error, not "not in memory"."""

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    monkeypatch.setattr("engine.fs.posix._NO_WAIT", 8)
    with fs.open(tmp_path / "f", create=True) as file:
        file.append(b"abc")
        with pytest.raises(OSError, match="input/output error"):
            file.read_cached(0, 3)


def test_descriptor_lives_as_long_as_a_reader_uses_it(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a file during a read neither breaks the read nor makes it read another file."""
    reading, closed = threading.Event(), threading.Event()
    whole_read = os.pread

    def slow_read(number: int, length: int, position: int) -> bytes:
        reading.set()
        assert closed.wait(10)
        return whole_read(number, length, position)

    file = fs.open(tmp_path / "f", create=True)
    file.append(b"mine")
    monkeypatch.setattr(os, "pread", slow_read)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(file.read_at(0, 4)))
    reader.start()
    assert reading.wait(10)
    file.close()
    with fs.open(tmp_path / "other", create=True) as other:
        other.append(b"another file")
        closed.set()
        reader.join(10)
    assert found == [b"mine"]


def test_an_index_is_reserved_in_steps(fs: PosixFileSystem, tmp_path: Path) -> None:
    """A sparse file takes disk space when its entries come near, not all at once."""
    index = fs.open_index(tmp_path / "m", 10 * RESERVE_BYTES)
    index.reserve(RESERVE_BYTES + 1)
    assert index.reserved_bytes == 2 * RESERVE_BYTES
    assert (tmp_path / "m").stat().st_blocks * 512 < 4 * RESERVE_BYTES


LOCKING_PROGRAM = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_another_process_owns_the_directory(fs: PosixFileSystem, tmp_path: Path) -> None:
    """A lock of another process, Kafka's for example, is respected until that process ends."""
    command = [sys.executable, "-c", LOCKING_PROGRAM, str(tmp_path / LOCK_FILE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryLocked):
            DirectoryLock(fs, tmp_path)
        other.stdin.close()
        other.wait(10)
    DirectoryLock(fs, tmp_path).release()


@pytest.mark.parametrize("replaced", [False, True])
def test_lock_on_a_file_that_its_owner_just_removed_is_taken_again(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, replaced: bool
) -> None:
    """A lock on a file without a name would exclude no other process, so it does not count."""
    lock_for_real = fcntl.lockf
    calls = []

    def lock_and_lose(number: int, operation: int) -> None:
        calls.append(number)
        if len(calls) == 1:
            (tmp_path / LOCK_FILE).unlink()
            if replaced:
                (tmp_path / LOCK_FILE).touch()
        lock_for_real(number, operation)

    monkeypatch.setattr(fcntl, "lockf", lock_and_lose)
    with DirectoryLock(fs, tmp_path):
        assert len(calls) == 2
        assert (tmp_path / LOCK_FILE).exists()


def test_failure_to_lock_is_not_taken_for_a_lock(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the file system is raised unchanged."""

    def out_of_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "lockf", out_of_locks)
    with pytest.raises(OSError, match="no locks available"):
        DirectoryLock(fs, tmp_path)


def test_a_lock_file_that_cannot_be_removed_does_not_lock(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that fails, or was turned read-only, a stop is none the less a stop."""

    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, "read-only")

    lock = DirectoryLock(fs, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", read_only)
        lock.release()
    assert (tmp_path / LOCK_FILE).exists()
    with DirectoryLock(fs, tmp_path):
        pass
    assert not (tmp_path / LOCK_FILE).exists()


def test_what_cannot_be_looked_at_is_not_taken_for_missing(
    fs: PosixFileSystem, tmp_path: Path
) -> None:
    """Only a missing path counts as missing; this one is longer than any name can be."""
    for look in (fs.exists, fs.is_directory):
        with pytest.raises(OSError, match="too long"):
            look(tmp_path / ("x" * 1_000))


def test_an_index_that_may_not_be_so_long_leaves_no_file(
    fs: PosixFileSystem, tmp_path: Path
) -> None:
    """The next start would find it as an index without entries."""
    with pytest.raises(OSError, match=r"Invalid argument|too large"):
        fs.open_index(tmp_path / "index", 2**63 - 1)
    assert not fs.exists(tmp_path / "index")


def test_a_short_write_of_an_index_is_completed(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of any file: a signal may come in between."""
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda number, data, at: pwrite(number, data[:3], at))
    file = fs.open_index(tmp_path / "index", 8)
    file.store(0, b"abcdefgh")
    assert (tmp_path / "index").read_bytes() == b"abcdefgh"


def test_no_more_files_are_needed_to_sync_a_directory_that_is_open(
    fs: PosixFileSystem, tmp_path: Path
) -> None:
    """To open it takes one."""
    with fs.open_directory(tmp_path) as directory, open_files_left(0):
        directory.sync_all()
        with pytest.raises(OSError, match="Too many open files"):
            fs.sync_directory(tmp_path)


@pytest.mark.parametrize("sync", ["sync", "sync_all", "forget_cached"])
def test_a_sync_beside_one_that_fails_fails_too(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str
) -> None:
    """The kernel reports lost pages to one thread, and success to the next."""
    begun, ended = threading.Event(), threading.Event()

    def lose_pages(_: int) -> None:
        begun.set()
        ended.wait()
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr("engine.fs.posix._sync_data", lose_pages)
    with fs.open(tmp_path / "f", create=True) as file:
        told: list[str] = []

        def first() -> None:
            try:
                file.sync()
            except OSError as error:
                told.append(str(error))

        thread = threading.Thread(target=first)
        thread.start()
        begun.wait()
        monkeypatch.setattr("engine.fs.posix._sync_data", os.fdatasync)
        ended.set()
        thread.join()
        with pytest.raises(OSError, match="earlier sync"):
            getattr(file, sync)()
        assert told == ["[Errno 5] lost"]


def test_every_kind_of_sync_and_rename_asks_the_system(fs: PosixFileSystem, tmp_path: Path) -> None:
    """Other tests use a disk in memory; this one checks the real system calls."""
    with disk_calls() as calls, fs.open(tmp_path / "f", create=True) as file:
        file.append(b"abc")
        file.sync()
        file.sync_all()
        fs.sync_directory(tmp_path)
        fs.rename(tmp_path / "f", tmp_path / "g")
    synced = "sync g of 3 bytes"
    assert calls.below(tmp_path) == [synced, synced, "sync .", "rename g"]


def test_an_index_is_synced_and_so_is_what_the_cache_forgets(
    fs: PosixFileSystem, tmp_path: Path
) -> None:
    """Pages that were not written back stay in the cache, whatever is advised."""
    (tmp_path / "f").write_bytes(bytes(8))
    with disk_calls() as calls, fs.open(tmp_path / "f") as file:
        index = fs.open_index(tmp_path / "f")
        index.sync()
        index.close()
        file.forget_cached()
    assert calls.below(tmp_path) == ["sync f of 8 bytes"] * 2 + ["advise f"]


def test_one_thread_at_a_time_syncs_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports a failure to the first one alone: the second one waits for its answer."""
    with PosixFileSystem().open(tmp_path / "file", create=True) as file:
        assert isinstance(file, PosixFile)
        others: list[bool] = []

        def sync(_: int) -> None:
            others.append(file._syncing.acquire(blocking=False))  # noqa: SLF001 - as another thread

        monkeypatch.setattr(posix, "_sync_data", sync)
        file.sync()
        assert others == [False]


def test_one_thread_at_a_time_takes_or_releases_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A POSIX lock does not exclude threads of its own process."""
    others: list[bool] = []

    def watched(call: Callable[..., object]) -> Callable[..., object]:
        def watch(*arguments: object, **options: object) -> object:
            others.append(PosixLock._registry.acquire(blocking=False))  # noqa: SLF001 - as above
            return call(*arguments, **options)

        return watch

    monkeypatch.setattr(fcntl, "lockf", watched(fcntl.lockf))
    monkeypatch.setattr(os, "unlink", watched(os.unlink))
    PosixFileSystem().lock(tmp_path / ".lock").release()
    assert others == [False, False]
