"""Reads for a copy: the same bytes, and a page cache that keeps what was in it before."""

from pathlib import Path

import pytest

from engine.fs.posix import PosixFile, PosixFileSystem


def test_a_read_aside_returns_the_bytes_cached_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the end of the file; what had to be read is dropped from the cache again."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with PosixFileSystem().open(path) as file:
        assert bytes(file.read_aside(2, 4)) == b"2345"
        assert bytes(file.read_aside(8, 100)) == b"89"
        monkeypatch.setattr(PosixFile, "read_cached", lambda *_: None)
        assert bytes(file.read_aside(2, 4)) == b"2345"
        assert bytes(file.read_aside(8, 100)) == b"89"
        assert bytes(file.read_aside(10, 1)) == b""
