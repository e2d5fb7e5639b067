"""Concurrent readers and one writer, on real files."""

import threading
from pathlib import Path

from engine.fs.posix import PosixFileSystem
from engine.index.offset import OffsetIndex

BASE = 1_000
ENTRIES = 3_000
ROUNDS = 15


def test_lookups_beside_every_change_are_right(tmp_path: Path) -> None:
    """While entries come, go, and the file is cut and extended, no answer is made up."""
    index = OffsetIndex(PosixFileSystem(), tmp_path / "i", BASE, ENTRIES * 8)
    done = threading.Event()
    wrong: list[object] = []
    looked_up = threading.Semaphore(0)

    def read() -> None:
        target = BASE
        while not done.is_set():
            target = BASE + (target * 7 + 13) % ENTRIES
            found = index.lookup(target)
            if not (BASE <= found.offset <= target and found.position == found.offset - BASE):
                wrong.append((target, found))
            looked_up.release()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(ROUNDS):
        for delta in range(1, ENTRIES, 3):
            index.append(BASE + delta, delta)
        index.trim()
        index.truncate(index.kept_below(BASE + ENTRIES // 2))
        index.trim()
        assert looked_up.acquire(timeout=60)
        index.reset()
    done.set()
    for reader in readers:
        reader.join(10)
    index.close()
    assert wrong == []
