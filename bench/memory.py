"""What a process takes: its largest resident set, and its time on the processors."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path
from typing import Final, Self

_EVERY_S: Final = 0.25
_PARENT: Final = 1  # fields of /proc/<pid>/stat behind the name of the program
_USER_TICKS: Final = 11
_SYSTEM_TICKS: Final = 12
_OWN_TICKS: Final = slice(11, 13)
_ALL_TICKS: Final = slice(11, 15)  # and those of the children that have ended
_PEAK: Final = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class MemoryWatch:
    """The peak of a process's resident memory while the `with` block runs, in bytes.

    Where Linux keeps the peak itself it is exact; elsewhere `ps` is asked four times a second.
    """

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            self.peak_bytes = max(self.peak_bytes, resident_bytes(self._pid))
        self.peak_bytes = max(self.peak_bytes, resident_bytes(self._pid))


def resident_bytes(pid: int) -> int:
    """Return the peak of a process so far if the system keeps it, else what it takes now."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        peak = _PEAK.search(status.read_text())
        return int(peak[1]) * 1024 if peak else 0
    return present_bytes(pid)


def present_bytes(pid: int) -> int:
    """Return the resident memory of a process now."""
    told = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return int(told.stdout.strip() or 0) * 1024


def processor_seconds(pid: int) -> float:
    """Return how long a process has been on a processor; 0 where the system does not tell so."""
    status = Path(f"/proc/{pid}/stat")
    if not status.exists():
        return 0.0
    fields = status.read_text().rpartition(")")[2].split()
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / os.sysconf("SC_CLK_TCK")


def tree_seconds(root: int) -> float:
    """Return the processor seconds of a process and all its descendants, ended ones as well."""
    return sum(_tree(root, _ALL_TICKS).values())


def tree_times(root: int) -> dict[int, float]:
    """Return the processor seconds of a process and its living descendants, each its own."""
    return _tree(root, _OWN_TICKS)


def _tree(root: int, ticks: slice) -> dict[int, float]:
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            pid = int(folder.name)
            parents[pid] = int(fields[_PARENT])
            seconds[pid] = sum(map(int, fields[ticks])) / os.sysconf("SC_CLK_TCK")

    def is_in_tree(pid: int) -> bool:
        while pid and pid != root:
            pid = parents.get(pid, 0)
        return pid == root

    return {pid: spent for pid, spent in seconds.items() if is_in_tree(pid)}
