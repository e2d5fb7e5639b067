"""Processes of the system: who started whom, and an end without a word."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def descendants(pid: int, *, named: str = "") -> list[int]:
    """Return what a process has started, directly or not; with `named` in its command line."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it has ended meanwhile
                # The name in brackets may hold anything; the parent is the second field after it.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        started = children.get(waiting.pop(), [])
        found += started
        waiting += started
    return [each for each in found if named in _command_line(each)]


def kill(pid: int) -> None:
    """Send SIGKILL; a process that is gone is as good."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _command_line(pid: int) -> str:
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_text(errors="replace")
    return ""
